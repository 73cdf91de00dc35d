/* What DPDK's librte_reorder takes for a packet: batches of 32 that arrive in pairs, the later batch
 * first, are put into a reorder buffer and drained again. Prints nanoseconds a packet, one line a round. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_reorder.h>

#define BATCH 32
#define MBUFS 1024
#define BATCHES 200000

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int argc, char **argv)
{
	struct rte_mbuf *mbufs[2 * BATCH], *out[2 * BATCH];
	struct rte_reorder_buffer *buffer;
	struct rte_mempool *pool;
	uint32_t number = 0;
	int rounds, used;

	used = rte_eal_init(argc, argv);
	if (used < 0)
		return 1;
	rounds = argc > used + 1 ? atoi(argv[used + 1]) : 5;
	pool = rte_pktmbuf_pool_create("mbufs", MBUFS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	buffer = rte_reorder_create("order", SOCKET_ID_ANY, 2048);
	if (!pool || !buffer || rte_pktmbuf_alloc_bulk(pool, mbufs, 2 * BATCH))
		return 1;
	/* The buffer takes the first number that it sees for the first there is. */
	*rte_reorder_seqn(mbufs[0]) = number++;
	if (rte_reorder_insert(buffer, mbufs[0]) || rte_reorder_drain(buffer, out, 1) != 1)
		return 1;
	while (rounds--) {
		unsigned long drained = 0;
		double start = now();

		for (int pair = 0; pair < BATCHES / 2; pair++) {
			for (int i = 0; i < 2 * BATCH; i++)
				*rte_reorder_seqn(mbufs[i]) = number++;
			for (int i = BATCH; i < 2 * BATCH; i++)
				if (rte_reorder_insert(buffer, mbufs[i]))
					return 2;
			drained += rte_reorder_drain(buffer, out, 2 * BATCH);
			for (int i = 0; i < BATCH; i++)
				if (rte_reorder_insert(buffer, mbufs[i]))
					return 2;
			drained += rte_reorder_drain(buffer, out, 2 * BATCH);
		}
		if (drained != (unsigned long)BATCHES * BATCH)
			return 3;
		printf("%.3f\n", (now() - start) / ((double)BATCHES * BATCH));
		fflush(stdout);
	}
	return 0;
}
