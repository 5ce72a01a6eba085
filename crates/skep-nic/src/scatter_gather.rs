//! Cores of the host that gather and scatter for the NIC (KV-Direct, section 6.1, Fig. 18, 19).
//!
//! ```text
//! gather   NIC ─ addresses ─▶ request queue ─▶ core: random reads ─▶ response queue ─ doorbell ─▶ NIC reads it, 256 B a TLP
//! scatter  NIC ─ addresses and data ─▶ request queue ─▶ core: random writes ─ doorbell ─▶ NIC may use the queue again
//! ```
//!
//! They stand between the dispatcher and the link, so that they never see a line of which the NIC's DRAM has a newer copy.
//! PCIe then carries full TLPs only. What it costs is a core's time and a batch's latency: all operations of a batch
//! share one doorbell. A batch is sent when it has as many operations as share a doorbell, or when a core has nothing to do:
//! the NIC may have fewer under way than a batch holds.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::clock::Clock;
use crate::hardware::HostCpu;
use crate::pcie::{Link, Residence};
use crate::resource::Slots;
use crate::time::Time;

/// Bytes that say where an operation's data lie.
const ADDRESS_BYTES: u32 = 8;
const LINE_BYTES: u32 = 64;

impl HostCpu {
    /// How long a core is busy with an operation on adjacent bytes.
    pub fn operation_span(&self, bytes: u32) -> Time {
        let lines = f64::from(bytes.div_ceil(LINE_BYTES));
        let access = self.first_line_ns + self.next_line_ns * (lines - 1.0);
        let copied = lines + f64::from(ADDRESS_BYTES) / f64::from(LINE_BYTES);
        Time::from_ns(access + self.copy_line_ns * copied)
    }
}

/// Cores that work for one link.
#[derive(Debug)]
pub struct ScatterGather {
    clock: Rc<Clock>,
    link: Link,
    spec: HostCpu,
    cores: Slots,
    /// What is collected: reads, and writes.
    open: [RefCell<Option<Rc<Batch>>>; 2],
    batches_under_way: Cell<u32>,
    under_way: Cell<u32>,
    /// How long cores were at work, all of them together.
    worked: Cell<Time>,
}

/// Operations that share a doorbell.
#[derive(Debug, Default)]
struct Batch {
    operations: Cell<u32>,
    bytes: Cell<u32>,
    /// What a core takes for it.
    work: Cell<Time>,
    is_done: Cell<bool>,
    /// Who opened it, and sees to it, while it is collected; all who wait for it after that.
    first: RefCell<Option<Waker>>,
    others: RefCell<Vec<Waker>>,
}

impl ScatterGather {
    /// Idle cores.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(clock: Rc<Clock>, link: Link, spec: HostCpu) -> Self {
        assert!(spec.cores_per_link > 0, "nobody would gather");
        ScatterGather {
            clock,
            link,
            cores: Slots::new(spec.cores_per_link),
            spec,
            open: Default::default(),
            batches_under_way: Cell::default(),
            under_way: Cell::default(),
            worked: Cell::default(),
        }
    }

    /// Reads adjacent bytes.
    pub async fn read(&self, bytes: u32) {
        self.pass(false, bytes).await;
    }

    /// Writes adjacent bytes.
    pub async fn write(&self, bytes: u32) {
        self.pass(true, bytes).await;
    }

    /// Operations that have begun and not ended.
    pub fn under_way(&self) -> u32 {
        self.under_way.get()
    }

    /// The link that they work for.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// How long its cores have been at work, on average.
    pub fn busy(&self) -> Time {
        self.worked.get().part(self.spec.cores_per_link.into())
    }

    /// Takes part in a batch until it is done.
    async fn pass(&self, writes: bool, bytes: u32) {
        self.under_way.set(self.under_way.get() + 1);
        let open = &self.open[usize::from(writes)];
        let batch = Rc::clone(open.borrow_mut().get_or_insert_default());
        batch.operations.set(batch.operations.get() + 1);
        batch.bytes.set(batch.bytes.get() + bytes);
        batch.work.set(batch.work.get() + self.spec.operation_span(bytes));
        let is_first = batch.operations.get() == 1;
        if batch.operations.get() == self.spec.doorbell_operations {
            open.take();
            batch.first.take().into_iter().for_each(Waker::wake);
        }
        if is_first {
            self.see_to(&batch, writes).await;
        } else {
            let _waiting = self.clock.span(|| "cores of the host gather or scatter a batch".to_owned());
            poll_fn(|context| {
                if batch.is_done.get() {
                    return Poll::Ready(());
                }
                batch.others.borrow_mut().push(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
        self.under_way.set(self.under_way.get() - 1);
    }

    /// Waits until a batch is to be sent, and takes it through.
    async fn see_to(&self, batch: &Rc<Batch>, writes: bool) {
        let open = &self.open[usize::from(writes)];
        let is_collected = || open.borrow().as_ref().is_some_and(|open| Rc::ptr_eq(open, batch));
        let collecting = self.clock.span(|| "collects a batch for the cores of the host".to_owned());
        poll_fn(|context| {
            if is_collected() && self.batches_under_way.get() >= self.spec.cores_per_link {
                batch.first.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        drop(collecting);
        if is_collected() {
            open.take();
        }
        self.batches_under_way.set(self.batches_under_way.get() + 1);
        let addresses = batch.operations.get() * ADDRESS_BYTES;
        let sent = if writes { addresses + batch.bytes.get() } else { addresses };
        self.clock.until(self.link.write(sent).await).await;
        self.work(batch.work.get()).await;
        if !writes {
            self.link.read(batch.bytes.get(), Residence::Cache).await;
        }
        self.batches_under_way.set(self.batches_under_way.get() - 1);
        batch.is_done.set(true);
        batch.others.take().into_iter().for_each(Waker::wake);
        for open in self.open.iter().filter_map(|open| open.borrow().clone()) {
            open.first.take().into_iter().for_each(Waker::wake);
        }
    }

    /// A core's part, with the doorbell's way to the NIC.
    async fn work(&self, span: Time) {
        let core = self.cores.take().await;
        let _work = self.clock.span(|| "a core of the host is at work".to_owned());
        self.clock.after(span).await;
        self.worked.set(self.worked.get() + span);
        drop(core);
        self.clock.after(self.link.one_way()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;
    use crate::hardware::Hardware;
    use crate::pcie::HostMemory;

    fn cores(cores_per_link: u32) -> (ScatterGather, Rc<Clock>) {
        let hardware = Hardware::kv_direct_one_link();
        let clock = Rc::new(Clock::default());
        let host = Rc::new(HostMemory::new(&hardware.host_dram));
        let link = Link::new(Rc::clone(&clock), host, &hardware, 1);
        let spec = HostCpu { cores_per_link, ..hardware.host_cpu };
        (ScatterGather::new(Rc::clone(&clock), link, spec), clock)
    }

    #[test]
    fn a_batch_takes_the_core_and_both_ways() {
        let (cores, clock) = cores(1);
        // The first finds the core with nothing to do and is a batch of its own; then 256 are one.
        run(&clock, 257, (0..257).map(|_| cores.read(64)));
        let own = cores.spec.operation_span(64);
        let core = own * 256;
        assert_eq!(cores.busy(), own + core);
        // Sent, 250 ns; worked on; 250 ns; 16 KiB read, of which the first bytes take 800 ns. A single one is sent and
        // read beside it.
        let rest = (clock.now() - core).as_us();
        assert!((9.0..11.0).contains(&core.as_us()) && (3.5..4.5).contains(&rest), "{core} and {rest} µs");
        assert_eq!(cores.under_way(), 0);
    }

    #[test]
    fn few_operations_never_wait_for_a_full_batch_and_reads_do_not_share_one_with_writes() {
        for count in [1, 2, 3, 100, 600] {
            let (cores, clock) = cores(2);
            let operation = async |number: u32| match number % 2 {
                0 => cores.read(64).await,
                _ => cores.write(64).await,
            };
            run(&clock, 64, (0..count).map(operation));
            assert_eq!((cores.under_way(), cores.batches_under_way.get()), (0, 0));
            assert!(cores.open.iter().all(|open| open.borrow().is_none()), "{count}");
        }
    }
}
