//! The account of memory, driven without connections: random requests are all admitted, in order, within the budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Class, Loan, MemoryBudget, ShardBudget, Waiter, kept, turn_max};
use crate::limits::{PIECE, ROOM_PART, SHARD_RESERVE, SHARE, SMALL_REQUEST_MAX, TURN_REPLIES_MAX};
use crate::vocabulary::Token;

mod small_part;

const BUDGET: usize = 64 << 20;

fn hold(shard_budget: &mut ShardBudget, loan: &mut Loan, requests: usize) {
    shard_budget.record(loan, requests, requests, 0);
}

fn hold_replies(shard_budget: &mut ShardBudget, loan: &mut Loan, replies: usize) {
    shard_budget.record(loan, replies, 0, replies);
}

fn waiter(budget: &MemoryBudget, connection: usize, bytes: usize, class: Class) -> Waiter {
    let ticket = budget.next_ticket();
    let is_small = class == Class::Whole && bytes <= SMALL_REQUEST_MAX;
    let (shard, token, connection) = (0, Token::default(), connection as u64);
    Waiter { shard, token, connection, bytes, class, ticket, proven: 0, is_small, is_in_small_part: false }
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
                if shard_budget.room_to_grow(loan, held, held, 1000, SHARE) + SHARE.saturating_sub(held) >= 1000 {
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
        let kept = memory_budget.pooled.load(Ordering::Relaxed);
        assert!(kept == shard_budget.pool_taken && kept <= 2 * memory_budget.shard_kept.cast_signed(), "{kept}");
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
        let (small_part, mut shard_budget) = (budget.small_part.free(), ShardBudget::new(budget.clone()));
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
        assert_eq!(budget.small_part.free(), small_part);
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
    assert_eq!(one.room_to_grow(&small, 0, 0, 1 << 20, SHARE), 0);
    assert_eq!(other.room_to_grow(&small, SHARE, SHARE, 1 << 20, SHARE), 0);
    assert!(!one.grant(&mut small, SMALL_REQUEST_MAX + 1, true) && other.permit(&mut small, 0).is_none());
    hold_replies(&mut one, &mut small, SHARD_RESERVE + SHARE);
    assert!(one.is_exhausted());
    hold_replies(&mut one, &mut small, 0);
    hold_replies(&mut one, &mut large, 0);
    assert!(!one.is_short() && other.room_to_grow(&small, SHARE, SHARE, 1 << 20, SHARE) == 1 << 20);
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
        shard_budget.room_to_grow(&loan, 0, 0, 1 << 20, SHARE);
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
    assert_eq!(other.room_to_grow(&Loan::default(), 0, 0, 1 << 20, SHARE), 0);
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
    shard_budget.set_away(&mut loan, 1 << 20, 0, 0);
    assert!(all(&shard_budget).abs_diff(charged) <= SHARE);
    memory_budget.record_batch(1 << 20, 0);
    shard_budget.set_away(&mut loan, 0, 1 << 20, 1 << 20);
    assert_eq!(all(&shard_budget), charged);
    shard_budget.leave(&mut loan, 1);
    assert_eq!(all(&shard_budget), 0);
}

#[test]
fn a_visit_keeps_its_part_of_the_pool() {
    let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 2));
    let mut shard_budget = ShardBudget::new(memory_budget.clone());
    let mut loan = Loan::default();
    // It grows without a grant.
    let held = SHARE + shard_budget.room_to_grow(&loan, 0, 0, 1 << 20, SHARE);
    hold(&mut shard_budget, &mut loan, held);
    assert_eq!((loan.pooled(), loan.is_granted()), (1 << 20, false));
    shard_budget.set_away(&mut loan, held, 0, 0);
    assert_eq!((loan.pooled(), loan.charge()), (1 << 20, 0), "its batch is charged, and it will come back");
    shard_budget.set_away(&mut loan, 0, held, held);
    assert_eq!((loan.pooled(), loan.charge()), (1 << 20, 1 << 20));
    shard_budget.leave(&mut loan, 1);
    assert_eq!(loan.pooled(), 0);
}

/// A step of a shard in [`no_order_of_steps_overdraws_the_account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountStep {
    /// Asks how many bytes its growing connection may hold in addition.
    Secure,
    /// Holds these bytes.
    Use,
    Grant,
    /// Waits for bytes in the queue, and takes what is admitted.
    Wait,
    Permit,
    Leave,
}

/// Two shards with a growing connection each, and an account that both change.
struct TwoShards {
    memory_budget: Arc<MemoryBudget>,
    shards: [(ShardBudget, Loan, usize, bool); 2],
    /// The bytes that may be held are looked up, and not taken: the account is broken.
    is_broken: bool,
}

impl TwoShards {
    const SIZE: usize = 600_000;

    fn new(is_broken: bool) -> TwoShards {
        let memory_budget = Arc::new(MemoryBudget::new(8 << 20, 512, 2));
        let shards = [(); 2].map(|()| (ShardBudget::new(memory_budget.clone()), Loan::default(), 0, false));
        TwoShards { memory_budget, shards, is_broken }
    }

    fn step(&mut self, shard: usize, step: AccountStep) {
        let memory_budget = self.memory_budget.clone();
        let (shard_budget, loan, secured, is_waiting) = &mut self.shards[shard];
        let held = loan.held();
        // They are certain until the next change.
        let used = std::mem::take(secured);
        match step {
            AccountStep::Leave => {
                if std::mem::take(is_waiting) {
                    memory_budget.forget(shard as u64);
                }
                shard_budget.leave(loan, shard as u64);
            }
            _ if *is_waiting => {}
            AccountStep::Secure if self.is_broken => {
                let left = memory_budget.pool_max.cast_signed() - memory_budget.pooled.load(Ordering::Relaxed);
                *secured = TwoShards::SIZE.min(left.max(0).cast_unsigned());
            }
            AccountStep::Secure => *secured = shard_budget.room_to_grow(loan, held, held, TwoShards::SIZE, SHARE),
            AccountStep::Use => hold(shard_budget, loan, held + used),
            AccountStep::Grant => _ = shard_budget.grant(loan, TwoShards::SIZE, false),
            AccountStep::Wait if loan.class() != Class::Whole => {
                *is_waiting = true;
                memory_budget
                    .wait(Waiter { shard: shard as u16, ..waiter(&memory_budget, shard, 500_000, Class::Growing) });
                shard_budget.balance();
            }
            AccountStep::Wait => {}
            AccountStep::Permit => _ = shard_budget.permit_replies(loan, 900_000),
        }
        memory_budget.admit(|_| ());
        for (shard, (shard_budget, loan, secured, is_waiting)) in self.shards.iter_mut().enumerate() {
            for waiter in memory_budget.take_admitted(shard as u16) {
                *secured = 0;
                match std::mem::take(is_waiting) {
                    true => shard_budget.accept(loan, &waiter),
                    false => shard_budget.decline(&waiter),
                }
            }
        }
    }

    /// Returns true if no more was lent than there is, of the pool and of the common part.
    fn is_right(&self) -> bool {
        let pooled = self.memory_budget.pooled.load(Ordering::Relaxed);
        let held: usize = self.shards.iter().map(|(_, loan, ..)| loan.pooled()).sum();
        (held.cast_signed()..=self.memory_budget.pool_max.cast_signed()).contains(&pooled)
            && self.memory_budget.free() >= 0
    }
}

/// Every order of a few steps of two shards, each of which is one change of the account.
#[test]
fn no_order_of_steps_overdraws_the_account() {
    const LENGTH: u32 = 5;
    let kinds = [
        AccountStep::Secure,
        AccountStep::Use,
        AccountStep::Grant,
        AccountStep::Wait,
        AccountStep::Permit,
        AccountStep::Leave,
    ];
    let steps: Vec<(usize, AccountStep)> = (0..2).flat_map(|shard| kinds.map(|kind| (shard, kind))).collect();
    for is_broken in [false, true] {
        let mut wrong = 0;
        for order in 0..steps.len().pow(LENGTH) {
            let mut two = TwoShards::new(is_broken);
            let mut left = order;
            let mut taken = Vec::with_capacity(LENGTH as usize);
            for _ in 0..LENGTH {
                let (shard, step) = steps[left % steps.len()];
                left /= steps.len();
                two.step(shard, step);
                taken.push((shard, step));
                if !two.is_right() {
                    assert!(is_broken, "{taken:?}: {:?}", two.memory_budget);
                    wrong += 1;
                    break;
                }
            }
            (0..2).for_each(|shard| two.step(shard, AccountStep::Leave));
            // Shards may keep a few pieces.
            let kept: isize = two.shards.iter().map(|(shard_budget, ..)| shard_budget.pool_taken).sum();
            assert_eq!(two.memory_budget.pooled.load(Ordering::Relaxed), kept, "{taken:?}");
            assert!(!two.memory_budget.has_waiting() && kept <= 4 * two.memory_budget.shard_kept.cast_signed());
            assert!(two.shards.iter().all(|(shard_budget, ..)| shard_budget.borrowed() == 0), "{taken:?}");
        }
        assert_eq!(wrong > 0, is_broken, "the test finds an account that is broken");
    }
}
