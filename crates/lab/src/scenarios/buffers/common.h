/* What the two programs of the scenario `buffers` share: time in windows, of which the median counts,
 * so that another process on the core changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BULK 32
/* Objects of one window. */
#define WINDOW 2048

static unsigned long rounds;

struct windows {
	double *samples;
	unsigned long count;
	double sum;
	unsigned long objects;
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

static double median(double *samples, unsigned long count)
{
	qsort(samples, count, sizeof(*samples), ascending);
	return count ? samples[count / 2] : 0;
}

/* What two looks at the clock cost that have nothing between them. */
static double look(void)
{
	static double cost;
	if (cost == 0) {
		double samples[1001];
		for (int i = 0; i < 1001; i++) {
			double start = now();
			samples[i] = now() - start;
		}
		cost = median(samples, 1001);
	}
	return cost;
}

static struct windows windows(void)
{
	struct windows windows = { malloc((rounds / WINDOW + 2) * sizeof(double)), 0, 0, 0 };
	if (windows.samples == NULL)
		abort();
	return windows;
}

/* Adds the time since `start` for so many objects. */
static void add(struct windows *windows, double start, unsigned long objects)
{
	windows->sum += now() - start - look();
	windows->objects += objects;
	if (windows->objects >= WINDOW) {
		windows->samples[windows->count++] = windows->sum / windows->objects;
		windows->sum = 0;
		windows->objects = 0;
	}
}

static double nanos(struct windows *windows)
{
	double nanos = median(windows->samples, windows->count);
	free(windows->samples);
	return nanos;
}
