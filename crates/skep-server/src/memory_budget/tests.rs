//! The account of memory, driven without connections: random requests are all admitted, in order, within the budget.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Class, Loan, MemoryBudget, ShardBudget, Waiter, kept, turn_max};
use crate::connections::Token;
use crate::limits::{PIECE, ROOM_PART, SHARD_RESERVE, SHARE, TURN_REPLIES_MAX};

const BUDGET: usize = 64 << 20;

fn hold(shard_budget: &mut ShardBudget, loan: &mut Loan, requests: usize) {
    shard_budget.record(loan, requests, requests, 0);
}

fn hold_replies(shard_budget: &mut ShardBudget, loan: &mut Loan, replies: usize) {
    shard_budget.record(loan, replies, 0, replies);
}

fn waiter(budget: &MemoryBudget, connection: usize, bytes: usize, class: Class) -> Waiter {
    let ticket = budget.next_ticket();
    Waiter { shard: 0, token: Token::default(), connection: connection as u64, bytes, class, ticket }
}

#[test]
fn growing_connections_leave_one_connection_the_most_that_it_may_hold() {
    for (budget, connections) in [(8 << 20, 512), (BUDGET, 100), (256 << 20, 10_000)] {
        let memory_budget = Arc::new(MemoryBudget::new(budget, connections, 1));
        let mut shard_budget = ShardBudget::new(memory_budget.clone());
        let mut loans: Vec<Loan> = (0..connections).map(|_| Loan::default()).collect();
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for loan in &mut loans {
                let held = loan.held();
                if shard_budget.room_to_grow(loan, (held, held), 1000, SHARE) + SHARE.saturating_sub(held) >= 1000 {
                    hold(&mut shard_budget, loan, held + 1000);
                    grows = true;
                }
            }
        }
        let pooled: usize = loans.iter().map(Loan::pooled).sum();
        assert!(pooled <= memory_budget.pool_max && pooled + 1000 * 3 > memory_budget.pool_max, "{pooled}");
        // One that begins now gets what it may hold.
        let mut whole = Loan::default();
        assert!(shard_budget.grant(&mut whole, memory_budget.one_max, true));
        for loan in loans.iter_mut().chain([&mut whole]) {
            shard_budget.leave(loan, 1);
        }
        assert_eq!((shard_budget.borrowed(), shard_budget.used()), (0, 0));
        assert_eq!(memory_budget.pooled.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

/// A connection of [`every_request_is_admitted_in_the_end`].
#[derive(Default)]
struct Client {
    loan: Loan,
    /// What its requests need, one after another.
    needs: Vec<usize>,
    is_whole: bool,
    is_waiting: bool,
    is_done: bool,
}

/// Lets clients ask for memory in random order. Each holds what it has until it has all. Returns how often they waited.
fn serve_all(
    clients: &mut [Client],
    budget: &MemoryBudget,
    shard_budget: &mut ShardBudget,
    random: &mut Xoshiro256PlusPlus,
) -> usize {
    let (mut waits, mut idle) = (0, 0);
    while clients.iter().any(|client| !client.is_done) {
        idle += 1;
        assert!(idle < 100 * clients.len(), "nothing changes");
        let index = random.random_range(0..clients.len());
        let client = &mut clients[index];
        if !client.is_done && !client.is_waiting {
            idle = 0;
            if let Some(&bytes) = client.needs.last() {
                // The last step of some growing ones is known to be the last.
                let is_whole = client.is_whole || client.needs.len() == 1 && index.is_multiple_of(2);
                if shard_budget.grant(&mut client.loan, bytes, is_whole) {
                    client.needs.pop();
                    let held = client.loan.held() + bytes;
                    hold(shard_budget, &mut client.loan, held);
                } else {
                    client.is_waiting = true;
                    waits += 1;
                    let class = if is_whole { Class::Whole } else { Class::Growing };
                    budget.wait(waiter(budget, index, bytes, class));
                }
            } else {
                client.is_done = true;
                shard_budget.leave(&mut client.loan, index as u64);
            }
        }
        shard_budget.balance();
        budget.admit(|_| ());
        for waiter in budget.take_admitted(0) {
            idle = 0;
            let client = &mut clients[waiter.connection as usize];
            client.is_waiting = false;
            shard_budget.accept(&mut client.loan, &waiter);
            client.needs.pop();
            let held = client.loan.held() + waiter.bytes;
            hold(shard_budget, &mut client.loan, held);
        }
        assert!(!shard_budget.is_low(), "requests leave the replies of a turn");
    }
    waits
}

#[test]
fn every_request_is_admitted_in_the_end() {
    for seed in 0..60 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let budget = Arc::new(MemoryBudget::new(8 << 20, 100, 1));
        let mut shard_budget = ShardBudget::new(budget.clone());
        let growing = random.random_range(0..=100);
        let mut clients: Vec<Client> = (0..100)
            .map(|_| {
                let is_whole = random.random_range(0..100) >= growing;
                let steps = if is_whole { 1 } else { random.random_range(1..20) };
                let most = [10_000, 300_000, budget.one_max][random.random_range(0..3)] / steps;
                let needs = (0..steps).map(|_| random.random_range(1..=most)).collect();
                Client { needs, is_whole, ..Client::default() }
            })
            .collect();
        let waits = serve_all(&mut clients, &budget, &mut shard_budget, &mut random);
        assert!(waits > 0, "seed {seed}: memory was never short");
        assert_eq!((shard_budget.borrowed(), budget.waiting().senior), (0, None));
    }
}

#[test]
fn requests_that_hold_nothing_are_admitted_in_the_order_of_their_arrival() {
    let budget = Arc::new(MemoryBudget::new(BUDGET, 100, 2));
    let mut shard_budget = ShardBudget::new(budget.clone());
    let (mut first, mut others) = (Loan::default(), (0..20).map(|_| Loan::default()).collect::<Vec<_>>());
    assert!(shard_budget.grant(&mut first, budget.one_max, true));
    for (index, loan) in others.iter_mut().enumerate() {
        // Large and small ones: none overtakes.
        let bytes = if index.is_multiple_of(3) { budget.one_max } else { 100_000 };
        assert_eq!(shard_budget.grant(loan, bytes, true), index == 0 && budget.one_max * 2 < BUDGET - kept(BUDGET));
        if loan.charge() == 0 {
            budget.wait(waiter(&budget, index, bytes, Class::Whole));
        }
    }
    let mut order = Vec::new();
    shard_budget.leave(&mut first, 0);
    while budget.has_waiting() {
        budget.admit(|_| ());
        let admitted = budget.take_admitted(0);
        assert!(!admitted.is_empty());
        for waiter in admitted {
            order.push(waiter.connection);
            let loan = &mut others[waiter.connection as usize];
            shard_budget.accept(loan, &waiter);
            shard_budget.leave(loan, waiter.connection);
        }
    }
    assert!(order.len() >= 19 && order.is_sorted(), "{order:?}");
}

#[test]
fn a_shard_that_is_short_keeps_the_shares() {
    let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
    let (mut one, mut other) = (ShardBudget::new(memory_budget.clone()), ShardBudget::new(memory_budget));
    // Replies of a turn, more than is left.
    let (mut large, mut small) = (Loan::default(), Loan::default());
    hold_replies(&mut one, &mut large, BUDGET);
    assert!(one.is_short() && !one.is_exhausted() && other.is_short());
    assert_eq!(one.room_to_grow(&small, (0, 0), 1 << 20, SHARE), 0);
    assert_eq!(other.room_to_grow(&small, (SHARE, SHARE), 1 << 20, SHARE), 0);
    assert!(!one.grant(&mut small, 1, true) && other.permit(&mut small, 0).is_none());
    hold_replies(&mut one, &mut small, SHARD_RESERVE + SHARE);
    assert!(one.is_exhausted());
    hold_replies(&mut one, &mut small, 0);
    hold_replies(&mut one, &mut large, 0);
    assert!(!one.is_short() && other.room_to_grow(&small, (SHARE, SHARE), 1 << 20, SHARE) == 1 << 20);
}

#[test]
fn requests_leave_the_replies_of_a_turn() {
    for (budget, connections) in [(8 << 20, 512), (BUDGET, 100), (256 << 20, 10_000)] {
        let mut shard_budget = ShardBudget::new(Arc::new(MemoryBudget::new(budget, connections, 1)));
        let turn_max = turn_max(shard_budget.memory_budget.common);
        let mut loans: Vec<Loan> = Vec::new();
        loop {
            let mut loan = Loan::default();
            if !shard_budget.grant(&mut loan, 100_000, true) {
                break;
            }
            loans.push(loan);
        }
        let left = shard_budget.free();
        assert!(left >= turn_max && !shard_budget.is_short(), "{left} of {turn_max}");
        assert!(shard_budget.reply_room() >= TURN_REPLIES_MAX, "no client has to take a reply first");
        shard_budget.record_output(0, turn_max);
        let room_max = if shard_budget.memory_budget.is_tight() { left / ROOM_PART } else { usize::MAX };
        assert!(shard_budget.reply_room() <= room_max, "a part is left for clients that ask for less");
        shard_budget.record_output(turn_max, 0);
        assert!(shard_budget.reply_room() >= TURN_REPLIES_MAX);
    }
}

#[test]
fn permits_end_where_the_memory_does() {
    for shards in [1, 2] {
        let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, shards));
        let mut shard_budget = ShardBudget::new(memory_budget.clone());
        let mut loans: Vec<Loan> = (0..100).map(|_| Loan::default()).collect();
        let mut sizes = Vec::new();
        for loan in &mut loans {
            // Each takes what it is permitted, and its client takes nothing.
            if let Some(permit) = shard_budget.permit(loan, 0) {
                let size = permit.reply_max() + TURN_REPLIES_MAX;
                assert!(loan.charge() + SHARE + 1 >= size, "it is charged from now on");
                hold_replies(&mut shard_budget, loan, size);
                shard_budget.end_permit(loan);
                sizes.push(size);
            }
        }
        let used = shard_budget.used();
        assert!(used <= BUDGET + 100 && used > BUDGET / 2, "{used}");
        assert!(sizes.is_sorted_by(|before, after| before >= after), "smaller parts at the end: {sizes:?}");
        assert!(shard_budget.permit(&mut loans[99], 0).is_none(), "no client takes anything");
        assert!(shard_budget.may_reply(0), "the reserve is for replies of the server");
    }
}

#[test]
fn idle_shards_leave_their_memory_to_others() {
    const SHARDS: usize = 16;
    let memory_budget = Arc::new(MemoryBudget::new(8 << 20, 512, SHARDS));
    let mut shard_budgets: Vec<ShardBudget> = (0..SHARDS).map(|_| ShardBudget::new(memory_budget.clone())).collect();
    for shard_budget in &mut shard_budgets {
        let mut loan = Loan::default();
        // Used once by this one, and by the next one not at all.
        assert!(shard_budget.grant(&mut loan, 1 << 20, true));
        shard_budget.leave(&mut loan, 1);
        shard_budget.room_to_grow(&loan, (0, 0), 1 << 20, SHARE);
        shard_budget.balance();
    }
    let free = memory_budget.free().cast_unsigned();
    assert!(free >= memory_budget.common - turn_max(memory_budget.common) / 2, "{free} of {}", memory_budget.common);
    assert!(shard_budgets.iter().all(|shard_budget| shard_budget.taken <= PIECE.cast_signed()));
}

#[test]
fn a_forwarded_batch_makes_no_shard_look_short_or_rich() {
    let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
    let (mut one, mut other) = (ShardBudget::new(memory_budget.clone()), ShardBudget::new(memory_budget.clone()));
    let mut loan = Loan::default();
    hold(&mut one, &mut loan, 2 << 20);
    let (free, common) = (memory_budget.free(), memory_budget.common);
    // One shard fills it, the other one adds replies, and the first one empties it.
    for (before, after) in [(0, 10 << 20), (10 << 20, 20 << 20), (20 << 20, 0)] {
        memory_budget.record_batch(before, after);
        assert_eq!(memory_budget.free() + memory_budget.batches().cast_signed() as isize, free);
        assert!([&one, &other].iter().all(|shard_budget| !shard_budget.is_overdrawn() && shard_budget.spare() >= 0));
    }
    // Beyond the budget, it uses the reserves, and each shard knows that.
    memory_budget.record_batch(0, common);
    assert!(one.is_overdrawn() && other.is_overdrawn() && !one.is_exhausted());
    assert_eq!(other.room_to_grow(&Loan::default(), (0, 0), 1 << 20, SHARE), 0);
    memory_budget.record_batch(common, common + SHARD_RESERVE);
    assert!(one.is_exhausted() && other.is_exhausted());
    memory_budget.record_batch(common + SHARD_RESERVE, 0);
    assert!(!one.is_overdrawn() && other.reply_room() == usize::MAX);
    one.leave(&mut loan, 1);
}

#[test]
fn bytes_of_a_visit_are_charged_once() {
    let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 2));
    let mut shard_budget = ShardBudget::new(memory_budget.clone());
    let mut loan = Loan::default();
    let all = |shard_budget: &ShardBudget| memory_budget.common - shard_budget.free();
    assert!(shard_budget.grant(&mut loan, 2 << 20, true));
    hold(&mut shard_budget, &mut loan, 1 << 20);
    let charged = all(&shard_budget);
    // Its request leaves with the visit, and comes back.
    memory_budget.record_batch(0, 1 << 20);
    shard_budget.set_away(&mut loan, 1 << 20);
    hold(&mut shard_budget, &mut loan, 0);
    assert!(all(&shard_budget).abs_diff(charged) <= SHARE);
    memory_budget.record_batch(1 << 20, 0);
    shard_budget.set_away(&mut loan, 0);
    hold(&mut shard_budget, &mut loan, 1 << 20);
    assert_eq!(all(&shard_budget), charged);
    shard_budget.leave(&mut loan, 1);
    assert_eq!(all(&shard_budget), 0);
}
