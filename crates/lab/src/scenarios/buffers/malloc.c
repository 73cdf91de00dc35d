/* What a malloc costs, for the scenario `buffers`: glibc's, or the one that LD_PRELOAD puts in its place.
 *
 *   malloc CORE_A CORE_B ROUNDS [drain]
 *
 * prints lines `NAME NANOSECONDS`, each the time of one object, taken and freed. */
#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#define BYTES 2048
#define RING 1024

static size_t bytes;
static int core_b;
static double there;

/* A ring between two threads; each end knows the other's cursor as of its last look. */
static void *cells[RING];
static _Alignas(128) atomic_ulong written;
static _Alignas(128) atomic_ulong taken;

static void pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* Keeps the compiler from seeing that memory is freed unused. */
static void *used(void *memory)
{
	__asm__ volatile("" : "+r"(memory) : : "memory");
	return memory;
}

static void get_bulk(void **objects)
{
	for (int i = 0; i < BULK; i++)
		if ((objects[i] = used(malloc(bytes))) == NULL)
			abort();
}

static void alone(const char *what)
{
	void *objects[BULK];
	struct windows single = windows(), bulk = windows();
	for (unsigned long done = 0; done < rounds; done += WINDOW) {
		double start = now();
		for (int i = 0; i < WINDOW; i++)
			free(used(malloc(bytes)));
		add(&single, start, WINDOW);
		start = now();
		for (int i = 0; i < WINDOW / BULK; i++) {
			get_bulk(objects);
			for (int j = 0; j < BULK; j++)
				free(objects[j]);
		}
		add(&bulk, start, WINDOW);
	}
	printf("%s.single %.3f\n", what, nanos(&single));
	printf("%s.bulk32 %.3f\n", what, nanos(&bulk));
}

static void *free_there(void *unused)
{
	struct windows freeing = windows();
	unsigned long done = 0;
	pin(core_b);
	while (done < rounds) {
		unsigned long to = atomic_load_explicit(&written, memory_order_acquire);
		if (to == done) {
			sched_yield();
			continue;
		}
		unsigned long count = to - done < BULK ? to - done : BULK;
		double start = now();
		for (unsigned long j = 0; j < count; j++)
			free(cells[(done + j) % RING]);
		add(&freeing, start, count);
		done += count;
		atomic_store_explicit(&taken, done, memory_order_release);
	}
	there = nanos(&freeing);
	return unused;
}

static void cross(const char *what)
{
	struct windows getting = windows();
	pthread_t other;
	atomic_store(&written, 0);
	atomic_store(&taken, 0);
	if (pthread_create(&other, NULL, free_there, NULL))
		abort();
	for (unsigned long done = 0; done < rounds; done += BULK) {
		while (done + BULK - atomic_load_explicit(&taken, memory_order_acquire) > RING)
			sched_yield();
		double start = now();
		get_bulk(&cells[done % RING]);
		add(&getting, start, BULK);
		atomic_store_explicit(&written, done + BULK, memory_order_release);
	}
	pthread_join(other, NULL);
	printf("%s %.3f\n", what, nanos(&getting) + there);
}

/* A burst that is held: as many objects, as far apart, as Polder's own burst takes. */
#define BURST 12288
#define APART 1000

static void drain(void)
{
	static void *held[BURST];
	static double times[BURST];
	struct rusage before, after;
	memset(held, 1, sizeof(held));
	memset(times, 1, sizeof(times));
	getrusage(RUSAGE_THREAD, &before);
	look();
	double start = now();
	for (int i = 0; i < BURST; i++) {
		while (now() < start + (double)i * APART)
			;
		double at = now();
		if ((held[i] = used(malloc(BYTES))) == NULL)
			abort();
		memset(held[i], 1, 64);
		times[i] = now() - at - look();
	}
	getrusage(RUSAGE_THREAD, &after);
	for (int i = 0; i < BURST; i++)
		free(held[i]);
	qsort(times, BURST, sizeof(*times), ascending);
	printf("drain.p999 %.0f\n", times[BURST - BURST / 1000 - 1]);
	printf("drain.longest %.0f\n", times[BURST - 1]);
	printf("drain.faults %ld\n", after.ru_minflt - before.ru_minflt);
}

int main(int argc, char **argv)
{
	static const size_t fragments[] = { 256, 1024, 2048 };
	if (argc != 4 && argc != 5)
		return 2;
	core_b = atoi(argv[2]);
	rounds = strtoul(argv[3], NULL, 10) / WINDOW * WINDOW;
	pin(atoi(argv[1]));
	if (argc == 5) {
		drain();
		return 0;
	}
	bytes = BYTES;
	alone("get_put");
	if (atoi(argv[1]) != core_b)
		cross("cross_core");
	for (int i = 0; i < 3; i++) {
		char name[32];
		bytes = fragments[i];
		snprintf(name, sizeof(name), "fragment_%zu.same_core", bytes);
		alone(name);
		snprintf(name, sizeof(name), "fragment_%zu.cross_core", bytes);
		if (atoi(argv[1]) != core_b)
			cross(name);
	}
	return 0;
}
