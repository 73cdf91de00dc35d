//! Workers that come and go while packets are under way.

use crate::bench::Bench;
use crate::cable::configuration;
use polder_datapath::drops::DropReason;

fn gateway(workers: usize, order: &str, rest: &str) -> String {
    format!(
        "version = 1\n[gateway]\nname = \"bench\"\nworkers = {workers}\n[port.a]\ntap = \"a\"\norder = \"{order}\"\n\
         [port.b]\ntap = \"b\"\n{rest}[bridge.lan]\nmembers = [\"a\", \"b\"]\n"
    )
}

/// Number of workers that there are one after the other.
const STEPS: [usize; 12] = [2, 1, 3, 2, 4, 1, 4, 3, 1, 2, 2, 1];

/// Sends while workers change; gives what was lost.
fn change(order: &str, queues: [usize; 2], rest: &str) -> u64 {
    let mut bench = Bench::new(&gateway(1, order, rest), queues);
    let mut before = 0;
    for (number, workers) in STEPS.into_iter().enumerate() {
        // Many packets are in rings and work batches when the workers are called back.
        bench.send(2000, 4, 100);
        bench.gateway.reload(configuration(&gateway(workers, order, rest))).expect("a reload");
        assert_eq!(bench.gateway.workers.len(), workers);
        bench.send(500, 4, 100);
        if number % 2 == 0 {
            bench.settle();
        }
        // What workers that are gone have counted stays.
        let received = bench.accounts().received;
        assert!(received >= before, "{received} after {before}");
        before = received;
        assert!(bench.gateway.worker_counters().len() >= workers);
    }
    bench.settle();
    let most = STEPS.into_iter().max().expect("there are steps");
    assert_eq!(bench.gateway.worker_counters().len(), most, "one for each number");
    // Each cable keeps its order; which of several is looked at first is the bench's affair.
    assert!(bench.overtaken == 0 || queues[1] > 1, "{order}: {} overtaken", bench.overtaken);
    let lost = bench.sent - bench.seen;
    let accounts = bench.finish();
    assert_eq!(accounts.dropped, lost, "{accounts:?}");
    lost
}

#[test]
fn queues_find_other_workers_and_nothing_is_lost() {
    assert_eq!(change("queue", [1, 1], ""), 0);
    // Four queues and one worker: three sending queues are nobody's until somebody comes.
    assert_eq!(change("queue", [4, 4], ""), 0);
}

/// Tickets are out and work batches on offer when the workers that know of them end.
#[test]
fn shared_flows_stay_in_order() {
    for order in ["spread", "auto", "hash"] {
        for queues in [[1, 1], [2, 3]] {
            change(order, queues, "");
        }
    }
}

/// Packets that wait in front of a port move with its queue, or are dropped and counted with a
/// worker that ends.
#[test]
fn waiting_packets_are_sent_or_counted() {
    change("queue", [2, 2], "queue = { kind = \"drop-tail\", rate_kbit = 50_000 }\n");
    change("spread", [1, 1], "queue = { kind = \"codel\", rate_kbit = 50_000 }\n");
}

#[test]
fn too_many_workers_are_refused_and_nothing_changes() {
    let mut bench = Bench::new(&gateway(2, "queue", ""), [1, 1]);
    let error = bench.gateway.reload(configuration(&gateway(17, "queue", ""))).expect_err("too many");
    assert!(error.to_string().contains("workers: 2 → 17 needs a restart"), "{error}");
    assert_eq!(bench.gateway.workers.len(), 2);
    bench.send(100, 4, 100);
    bench.settle();
    assert_eq!((bench.seen, bench.dropped(DropReason::NoCore)), (100, 0));
    bench.finish();
}
