/* What DPDK's mempool and mbuf cost, for the scenario `buffers`. Linked to libdpdk as the system has it.
 *
 *   dpdk CORE_A CORE_B ROUNDS
 *
 * prints lines `NAME NANOSECONDS`, each the time of one object, taken and put back. */
#define _GNU_SOURCE
#include "common.h"

#include <sched.h>

#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#define OBJECTS 16383
#define CACHE 256

static struct rte_ring *ring;
static struct rte_mempool *crossing;
static int as_mbufs;

static double there;

static void mempool_alone(struct rte_mempool *pool)
{
	void *objects[BULK];
	struct windows single = windows(), bulk = windows();
	for (unsigned long done = 0; done < rounds; done += WINDOW) {
		double start = now();
		for (int i = 0; i < WINDOW; i++) {
			if (rte_mempool_get(pool, objects))
				abort();
			rte_mempool_put(pool, objects[0]);
		}
		add(&single, start, WINDOW);
		start = now();
		for (int i = 0; i < WINDOW / BULK; i++) {
			if (rte_mempool_get_bulk(pool, objects, BULK))
				abort();
			rte_mempool_put_bulk(pool, objects, BULK);
		}
		add(&bulk, start, WINDOW);
	}
	printf("get_put.single.dpdk_mempool %.3f\n", nanos(&single));
	printf("get_put.bulk32.dpdk_mempool %.3f\n", nanos(&bulk));
}

static void mbuf_alone(struct rte_mempool *pool)
{
	struct rte_mbuf *mbufs[BULK];
	struct windows single = windows(), bulk = windows();
	for (unsigned long done = 0; done < rounds; done += WINDOW) {
		double start = now();
		for (int i = 0; i < WINDOW; i++) {
			struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
			if (mbuf == NULL)
				abort();
			rte_pktmbuf_free(mbuf);
		}
		add(&single, start, WINDOW);
		start = now();
		for (int i = 0; i < WINDOW / BULK; i++) {
			if (rte_pktmbuf_alloc_bulk(pool, mbufs, BULK))
				abort();
			rte_pktmbuf_free_bulk(mbufs, BULK);
		}
		add(&bulk, start, WINDOW);
	}
	printf("get_put.single.dpdk_mbuf %.3f\n", nanos(&single));
	printf("get_put.bulk32.dpdk_mbuf %.3f\n", nanos(&bulk));
}

/* The other core: takes what comes and puts it back. Only that is timed, not the ring. */
static int put_back(void *unused)
{
	void *objects[BULK];
	struct windows putting = windows();
	unsigned long done = 0;
	(void)unused;
	while (done < rounds) {
		unsigned count = rte_ring_sc_dequeue_burst(ring, objects, BULK, NULL);
		if (count == 0) {
			sched_yield();
			continue;
		}
		double start = now();
		if (as_mbufs)
			rte_pktmbuf_free_bulk((struct rte_mbuf **)objects, count);
		else
			rte_mempool_put_bulk(crossing, objects, count);
		add(&putting, start, count);
		done += count;
	}
	there = nanos(&putting);
	return 0;
}

static int get_bulk(struct rte_mempool *pool, void **objects)
{
	return as_mbufs ? rte_pktmbuf_alloc_bulk(pool, (struct rte_mbuf **)objects, BULK)
			: rte_mempool_get_bulk(pool, objects, BULK);
}

static void cross(const char *name, struct rte_mempool *pool, int mbufs, unsigned other)
{
	void *objects[BULK];
	struct windows getting = windows();
	crossing = pool;
	as_mbufs = mbufs;
	rte_eal_remote_launch(put_back, NULL, other);
	for (unsigned long done = 0; done < rounds; done += BULK) {
		double start = now();
		while (get_bulk(pool, objects)) {
			sched_yield();
			start = now();
		}
		add(&getting, start, BULK);
		while (rte_ring_sp_enqueue_bulk(ring, objects, BULK, NULL) == 0)
			sched_yield();
	}
	rte_eal_wait_lcore(other);
	printf("%s %.3f\n", name, nanos(&getting) + there);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	char cores[32];
	snprintf(cores, sizeof(cores), "%s,%s", argv[1], argv[2]);
	rounds = strtoul(argv[3], NULL, 10) / WINDOW * WINDOW;
	char *eal[] = { argv[0], "-l", cores, "--main-lcore", argv[1], "--no-huge", "-m", "512", "--no-pci",
			"--no-shconf", "--no-telemetry", NULL };
	if (rte_eal_init(sizeof(eal) / sizeof(*eal) - 1, eal) < 0)
		return 1;
	struct rte_mempool *plain = rte_mempool_create("plain", OBJECTS, 2048, CACHE, 0, NULL, NULL, NULL,
						       NULL, SOCKET_ID_ANY, 0);
	struct rte_mempool *mbufs = rte_pktmbuf_pool_create("mbufs", OBJECTS, CACHE, 0,
							    RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	ring = rte_ring_create("ring", 1024, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	unsigned other = rte_get_next_lcore(-1, 1, 0);
	if (plain == NULL || mbufs == NULL || ring == NULL)
		return 1;
	mempool_alone(plain);
	mbuf_alone(mbufs);
	if (other < RTE_MAX_LCORE) {
		cross("cross_core.dpdk_mempool", plain, 0, other);
		cross("cross_core.dpdk_mbuf", mbufs, 1, other);
	}
	return 0;
}
