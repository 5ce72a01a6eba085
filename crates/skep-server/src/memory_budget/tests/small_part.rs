//! Small requests do not wait after large ones, and take nothing from them.

use std::sync::Arc;

use super::super::{Class, Loan, MemoryBudget, ShardBudget, kept};
use super::{BUDGET, hold, hold_replies, waiter};
use crate::limits::{SHARE, SMALL_PART, SMALL_REQUEST_MAX};

const SMALL: usize = 25_000;

/// Lets a connection ask for memory for a whole request. Returns true if it was granted; else it waits.
fn ask(
    shard_budget: &mut ShardBudget,
    budget: &MemoryBudget,
    loan: &mut Loan,
    connection: usize,
    bytes: usize,
) -> bool {
    let is_granted = shard_budget.grant(loan, bytes, true);
    if !is_granted {
        budget.wait(waiter(budget, connection, bytes, Class::Whole));
        shard_budget.balance();
    }
    is_granted
}

/// Admits those that wait, and returns their numbers.
fn admit(shard_budget: &mut ShardBudget, budget: &MemoryBudget, loans: &mut [Loan]) -> Vec<usize> {
    budget.admit(|_| ());
    let admitted = budget.take_admitted(0);
    for waiter in &admitted {
        shard_budget.accept(&mut loans[waiter.connection as usize], waiter);
    }
    admitted.iter().map(|waiter| waiter.connection as usize).collect()
}

#[test]
fn a_small_request_is_admitted_at_once_while_large_ones_wait() {
    let budget = Arc::new(MemoryBudget::new(BUDGET, 100, 2));
    let mut shard_budget = ShardBudget::new(budget.clone());
    let small_part = budget.small_part.free();
    let in_small_part = small_part / SMALL;
    let mut loans: Vec<Loan> = (0..in_small_part + 200).map(|_| Loan::default()).collect();
    let (large, small) = loans.split_at_mut(100);
    let is_granted = |(number, loan): (usize, &mut Loan)| ask(&mut shard_budget, &budget, loan, number, 1 << 20);
    let granted = large.iter_mut().enumerate().map(is_granted).filter(|is_granted| *is_granted).count();
    assert!(granted > 30 && granted < 70, "{granted}: most of the memory, and others wait");
    for (number, loan) in small[..in_small_part + 2].iter_mut().enumerate() {
        let is_granted = ask(&mut shard_budget, &budget, loan, 100 + number, SMALL);
        assert_eq!(is_granted, number < in_small_part, "the small part has room for {in_small_part}, this is {number}");
    }
    assert!(budget.free() >= kept(budget.common).cast_signed() && budget.small_part.free() < SMALL);
    // The small part has room again: its first one is admitted, and another one does not come before the second one.
    shard_budget.end_grant(&mut loans[100], 100, false);
    assert!(!shard_budget.grant(&mut loans[150], SMALL, true), "others wait for the small part");
    assert_eq!(admit(&mut shard_budget, &budget, &mut loans), [100 + in_small_part]);
    // The common part has room again: the first large ones are admitted, regardless of the small one.
    shard_budget.leave(&mut loans[0], 0);
    assert_eq!(admit(&mut shard_budget, &budget, &mut loans), [granted]);
    shard_budget.leave(&mut loans[101], 101);
    assert_eq!(admit(&mut shard_budget, &budget, &mut loans), [100 + in_small_part + 1]);
    // A request of a connection that grows, and one that is not small, do not use the small part.
    shard_budget.leave(&mut loans[102], 102);
    assert!(!shard_budget.grant(&mut loans[150], SMALL, false));
    assert!(!shard_budget.grant(&mut loans[150], SMALL_REQUEST_MAX + 1, true));
    // Large ones are admitted in the order of their arrival until none waits, and all memory is returned.
    let mut order: Vec<usize> = Vec::new();
    while budget.has_waiting() {
        let next = order.len() + 1;
        shard_budget.leave(&mut loans[next], next as u64);
        order.extend(admit(&mut shard_budget, &budget, &mut loans));
    }
    assert!(order.is_sorted() && order.last() == Some(&99), "{order:?}");
    loans.iter_mut().for_each(|loan| shard_budget.leave(loan, 1 << 40));
    assert_eq!((shard_budget.borrowed(), budget.small_part.free()), (0, small_part));
}

#[test]
fn small_requests_that_leave_before_they_know_of_their_memory_return_it() {
    let budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
    let mut shard_budget = ShardBudget::new(budget.clone());
    let (small_part, mut loans) = (budget.small_part.free(), [(); 2].map(|()| Loan::default()));
    hold_replies(&mut shard_budget, &mut loans[0], BUDGET);
    budget.wait(waiter(&budget, 1, SMALL, Class::Whole));
    budget.wait(waiter(&budget, 2, 1 << 20, Class::Whole));
    budget.admit(|_| ());
    assert_eq!(budget.small_part.free(), small_part - SMALL);
    let admitted = budget.take_admitted(0);
    assert!(admitted.len() == 1 && admitted[0].is_in_small_part);
    shard_budget.decline(&admitted[0]);
    assert_eq!((budget.small_part.free(), budget.queued_connections()), (small_part, vec![2]));
}

#[test]
fn what_a_connection_holds_beside_the_small_part_is_charged() {
    let budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
    let mut shard_budget = ShardBudget::new(budget.clone());
    let (small_part, mut loan) = (budget.small_part.free(), Loan::default());
    budget.wait(waiter(&budget, 1, 1 << 30, Class::Whole));
    assert!(shard_budget.grant(&mut loan, SMALL, true));
    for requests in [0, SHARE, SHARE + SMALL] {
        hold(&mut shard_budget, &mut loan, requests);
        assert_eq!((loan.charge(), loan.small_part()), (0, SMALL));
    }
    // Its reply is memory of the common part.
    shard_budget.record(&mut loan, SHARE + SMALL + 70_000, SHARE + SMALL, 70_000);
    assert_eq!(loan.charge(), 70_000);
    // What it has left after its request is no memory of the small part.
    assert!(!shard_budget.may_keep(&loan, SHARE + SMALL));
    shard_budget.end_grant(&mut loan, 2, false);
    assert_eq!((loan.charge(), budget.small_part.free()), (SMALL + 70_000, small_part));
}

/// A step of a connection in [`no_order_of_steps_breaks_the_small_part`].
#[derive(Clone, Copy, Debug)]
enum SmallStep {
    Large,
    Small,
    /// Its request is done, or it ends while it waits.
    End,
}

/// Four connections of a shard, and a small part with room for two small requests.
struct FourConnections {
    budget: Arc<MemoryBudget>,
    shard_budget: ShardBudget,
    loans: [Loan; 4],
    is_waiting: [bool; 4],
}

impl FourConnections {
    const SIZES: [usize; 2] = [1_000_000, 70_000];

    fn new() -> FourConnections {
        // One large request fits.
        let budget = Arc::new(MemoryBudget::new((150_000 * SMALL_PART) + 4 * SHARE, 4, 1));
        let shard_budget = ShardBudget::new(budget.clone());
        FourConnections { budget, shard_budget, loans: Default::default(), is_waiting: [false; 4] }
    }

    fn step(&mut self, connection: usize, step: SmallStep) {
        let FourConnections { budget, shard_budget, loans, is_waiting } = self;
        match step {
            SmallStep::End => {
                if std::mem::take(&mut is_waiting[connection]) {
                    budget.forget(connection as u64);
                }
                shard_budget.leave(&mut loans[connection], connection as u64);
            }
            _ if is_waiting[connection] || loans[connection].is_granted() => {}
            SmallStep::Large | SmallStep::Small => {
                let bytes = FourConnections::SIZES[step as usize];
                is_waiting[connection] = !ask(shard_budget, budget, &mut loans[connection], connection, bytes);
            }
        }
        for admitted in admit(shard_budget, budget, loans) {
            assert!(std::mem::take(&mut is_waiting[admitted]));
        }
    }

    fn check(&self, steps: &[(usize, SmallStep)]) {
        let FourConnections { budget, shard_budget, loans, .. } = self;
        let in_small_part: usize = loans.iter().map(Loan::small_part).sum();
        assert_eq!(in_small_part + budget.small_part.free(), 150_000, "{steps:?}");
        let charged: usize = loans.iter().map(Loan::charge).sum();
        assert_eq!(charged, shard_budget.borrowed(), "{steps:?}");
        assert!(shard_budget.free() >= kept(budget.common), "{steps:?}");
        for (loan, is_waiting) in loans.iter().zip(self.is_waiting) {
            assert!(!is_waiting || loan.charge() + loan.small_part() == 0, "{steps:?}: what waits holds nothing");
        }
        // What waits does not fit, and large ones wait only for other large ones and for those that came before.
        let waiting = budget.waiting();
        if let Some(first) = waiting.first() {
            assert!(
                shard_budget.free() < kept(budget.common) + first.bytes,
                "{steps:?}: the first one waits for nothing"
            );
        }
        assert!(!waiting.has_small() || budget.small_part.free() < FourConnections::SIZES[1], "{steps:?}");
    }
}

/// Every order of a few steps of four connections.
#[test]
fn no_order_of_steps_breaks_the_small_part() {
    const LENGTH: u32 = 6;
    let kinds = [SmallStep::Large, SmallStep::Small, SmallStep::End];
    let steps: Vec<(usize, SmallStep)> = (0..4).flat_map(|number| kinds.map(|kind| (number, kind))).collect();
    let mut most_in_small_part = 0;
    // The connections are alike: the first one begins.
    for order in 0..steps.len().pow(LENGTH - 1) {
        let mut four = FourConnections::new();
        let mut left = order;
        let mut taken = vec![(0, SmallStep::Large)];
        four.step(0, SmallStep::Large);
        for _ in 1..LENGTH {
            let (connection, step) = steps[left % steps.len()];
            left /= steps.len();
            taken.push((connection, step));
            four.step(connection, step);
            four.check(&taken);
        }
        most_in_small_part = most_in_small_part.max(four.loans.iter().map(Loan::small_part).sum());
        (0..4).for_each(|connection| four.step(connection, SmallStep::End));
        four.check(&taken);
        assert!(!four.budget.has_waiting() && four.shard_budget.borrowed() == 0, "{taken:?}");
    }
    assert_eq!(most_in_small_part, 2 * FourConnections::SIZES[1]);
}
