//! Cores of the host that gather and scatter for the NIC (KV-Direct, section 6.1, Fig. 18, 19).
//!
//! ```text
//! gather   NIC ─ addresses ─▶ request queue ─▶ core: random reads ─▶ reply queue ─ doorbell ─▶ NIC reads, 256 B a TLP
//! scatter  NIC ─ addresses and data ─▶ request queue ─▶ core: random writes ─ doorbell ─▶ NIC may reuse the queue
//! ```
//!
//! The cores are between the dispatcher and the link, so they never access a line whose newer copy is in the NIC's
//! DRAM. With them, PCIe carries only full TLPs. The cost is a core's time and a batch's latency, because all
//! operations of a batch share one doorbell. A batch is sent when it has the number of operations that share a
//! doorbell, or when a core is idle. The second rule is necessary because the NIC may have fewer operations in flight
//! than a batch holds.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::clock::Clock;
use crate::hardware::HostCpu;
use crate::pcie::{Link, Residence};
use crate::resource::Slots;
use crate::time::Time;

/// Bytes of the address of an operation's data.
const ADDRESS_BYTES: u32 = 8;
/// Bytes of a doorbell.
const DOORBELL_BYTES: u32 = 8;
const LINE_BYTES: u32 = 64;

impl HostCpu {
    /// Returns how long a core is busy with an operation on adjacent bytes.
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
    /// The open batches, of reads and of writes.
    open: [RefCell<Option<Rc<Batch>>>; 2],
    batches_in_flight: Cell<u32>,
    in_flight: Cell<u32>,
    /// Total time for which cores were busy.
    worked: Cell<Time>,
}

/// Operations that share a doorbell.
#[derive(Debug, Default)]
struct Batch {
    operations: Cell<u32>,
    bytes: Cell<u32>,
    /// Time that a core needs for the batch.
    work: Cell<Time>,
    is_done: Cell<bool>,
    /// The operation that opened the batch waits here until the batch is sent. It then processes the batch.
    first: RefCell<Option<Waker>>,
    others: RefCell<Vec<Waker>>,
}

impl ScatterGather {
    /// Returns idle cores.
    ///
    /// # Panics
    /// If there are no cores.
    pub fn new(clock: Rc<Clock>, link: Link, spec: HostCpu) -> Self {
        assert!(spec.cores_per_link > 0, "a link needs at least one core");
        ScatterGather {
            clock,
            link,
            cores: Slots::new(spec.cores_per_link),
            spec,
            open: Default::default(),
            batches_in_flight: Cell::default(),
            in_flight: Cell::default(),
            worked: Cell::default(),
        }
    }

    /// Reads adjacent bytes.
    pub async fn read(&self, bytes: u32) {
        self.join_batch(false, bytes).await;
    }

    /// Writes adjacent bytes.
    pub async fn write(&self, bytes: u32) {
        self.join_batch(true, bytes).await;
    }

    /// Returns the number of operations that have begun and not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Returns the link of the cores.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns how long the cores have been busy, on average.
    pub fn busy(&self) -> Time {
        self.worked.get().part(self.spec.cores_per_link.into())
    }

    /// Joins a batch and waits until it is done.
    async fn join_batch(&self, writes: bool, bytes: u32) {
        self.in_flight.set(self.in_flight.get() + 1);
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
            self.process(&batch, writes).await;
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
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Waits until a batch is to be sent, and processes it.
    async fn process(&self, batch: &Rc<Batch>, writes: bool) {
        let open = &self.open[usize::from(writes)];
        let is_collected = || open.borrow().as_ref().is_some_and(|open| Rc::ptr_eq(open, batch));
        let collecting = self.clock.span(|| "collects a batch for the cores of the host".to_owned());
        poll_fn(|context| {
            if is_collected() && self.batches_in_flight.get() >= self.spec.cores_per_link {
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
        self.batches_in_flight.set(self.batches_in_flight.get() + 1);
        let addresses = batch.operations.get() * ADDRESS_BYTES;
        let sent = if writes { addresses + batch.bytes.get() } else { addresses };
        self.clock.until(self.link.write(sent).await).await;
        self.work(batch.work.get()).await;
        if !writes {
            // The queue of replies begins at a boundary.
            self.link.read(0, batch.bytes.get(), Residence::Cache).await;
        }
        self.batches_in_flight.set(self.batches_in_flight.get() - 1);
        batch.is_done.set(true);
        batch.others.take().into_iter().for_each(Waker::wake);
        for open in self.open.iter().filter_map(|open| open.borrow().clone()) {
            open.first.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Occupies a core, and waits until the doorbell has arrived at the NIC.
    async fn work(&self, span: Time) {
        let core = self.cores.take().await;
        let _work = self.clock.span(|| "a core of the host is at work".to_owned());
        self.clock.after(span).await;
        self.worked.set(self.worked.get() + span);
        drop(core);
        self.link.host_write(DOORBELL_BYTES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;
    use crate::dram::Dram;
    use crate::hardware::Hardware;

    fn cores(cores_per_link: u32) -> (ScatterGather, Rc<Clock>) {
        let hardware = Hardware::kv_direct_one_link();
        let clock = Rc::new(Clock::default());
        let host = Rc::new(Dram::of_host(&hardware.host_dram));
        let link = Link::new(Rc::clone(&clock), host, &hardware.pcie, 1);
        let spec = HostCpu { cores_per_link, ..hardware.host_cpu };
        (ScatterGather::new(Rc::clone(&clock), link, spec), clock)
    }

    #[test]
    fn a_batch_takes_the_core_and_both_directions() {
        let (cores, clock) = cores(1);
        // The first operation finds the core idle and is a batch of its own. The next 256 are one batch.
        run(&clock, 257, (0..257).map(|_| cores.read(64)));
        let own = cores.spec.operation_span(64);
        let core = own * 256;
        assert_eq!(cores.busy(), own + core);
        // The full batch is sent in 250 ns and executed. After another 250 ns, 16 KiB are read, whose first bytes take
        // 800 ns. The single operation is sent and read in parallel.
        let rest = (clock.now() - core).as_us();
        assert!((9.0..11.0).contains(&core.as_us()) && (3.5..4.5).contains(&rest), "{core} and {rest} µs");
        assert_eq!(cores.in_flight(), 0);
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
            assert_eq!((cores.in_flight(), cores.batches_in_flight.get()), (0, 0));
            assert!(cores.open.iter().all(|open| open.borrow().is_none()), "{count}");
        }
    }
}
