//! Safe objects for the verbs that the transport uses. The C library libibverbs is opened at run time, so a program that
//! was built with RDMA starts on machines without it.
//!
//! Each object owns its counterpart in the library, and keeps the objects alive that this one depends on. It is destroyed
//! when it is dropped.
//!
//! A network card reads and writes a [`Region`] at any time, as another thread would. So the region consists of atomic
//! words. It is deregistered before its memory is freed; from then on the card has no access.

#![expect(unsafe_code, reason = "calls the C library, and gives the network card access to memory")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{Error, ErrorKind, Result};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use super::abi::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, AhAttr, CompChannel, MTU_1024, Mr, Opaque, QP_ACCESS_FLAGS, QP_AV,
    QP_DEST_QPN, QP_PATH_MTU, QP_PKEY_INDEX, QP_PORT, QP_QKEY, QP_RQ_PSN, QP_SQ_PSN, QP_STATE, QPS_INIT, QPS_RTR,
    QPS_RTS, QPT_UC, QPT_UD, Qp, QpAttr, QpCap, QpInitAttr, RecvWr, SEND_INLINE, SEND_SIGNALED, SendWr, Sge,
    WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM, WR_SEND, Wc,
};

/// The begin of `ibv_context`: an open device. The functions that are called often are pointers in it.
#[repr(C)]
struct Context {
    device: *mut Opaque,
    unused_first: [*mut Opaque; 11],
    poll_cq: unsafe extern "C" fn(*mut Opaque, c_int, *mut Wc) -> c_int,
    req_notify_cq: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int,
    unused_second: [*mut Opaque; 12],
    post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
}

const _: () = {
    assert!(mem::offset_of!(Context, poll_cq) == 96 && mem::offset_of!(Context, req_notify_cq) == 104);
    assert!(mem::offset_of!(Context, post_send) == 208 && mem::offset_of!(Context, post_recv) == 216);
};

/// Declares the functions of the library, and how they are found.
macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        struct Library { $($name: unsafe extern "C" fn($($argument),*) -> $result),* }

        impl Library {
            /// Finds the functions in the library that this handle of `dlopen` names.
            fn find(handle: NonNull<c_void>) -> Option<Library> {
                Some(Library { $($name: {
                    // SAFETY: the handle is one of `dlopen`, and the name ends with a zero.
                    let found = unsafe { libc::dlsym(handle.as_ptr(), concat!("ibv_", stringify!($name), "\0").as_ptr().cast()) };
                    let found = NonNull::new(found)?;
                    // SAFETY: the first version of the library fixes the types of its functions, and they are written
                    // below as `infiniband/verbs.h` declares them.
                    unsafe { mem::transmute_copy::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> $result>(&found) }
                }),* })
            }
        }
    };
}

library! {
    get_device_list: fn(*mut c_int) -> *mut *mut Opaque;
    free_device_list: fn(*mut *mut Opaque) -> ();
    get_device_name: fn(*mut Opaque) -> *const c_char;
    open_device: fn(*mut Opaque) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    alloc_pd: fn(*mut Context) -> *mut Opaque;
    dealloc_pd: fn(*mut Opaque) -> c_int;
    reg_mr: fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut CompChannel;
    destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    get_cq_event: fn(*mut CompChannel, *mut *mut Opaque, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Opaque, c_uint) -> ();
    create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Opaque;
    destroy_cq: fn(*mut Opaque) -> c_int;
    create_qp: fn(*mut Opaque, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
    create_ah: fn(*mut Opaque, *mut AhAttr) -> *mut Opaque;
    destroy_ah: fn(*mut Opaque) -> c_int;
}

/// Opens the library, once in a process.
fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        // SAFETY: the name ends with a zero. The library has no initialisers that demand anything of the program.
        let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        Library::find(NonNull::new(handle)?)
    };
    let missing = "the library libibverbs.so.1 cannot be opened (Debian: install libibverbs1 and ibverbs-providers)";
    LIBRARY.get_or_init(open).as_ref().ok_or_else(|| Error::new(ErrorKind::NotFound, missing))
}

/// Returns an object that the library has created, or the error of the system.
fn created<T>(object: *mut T) -> Result<NonNull<T>> {
    NonNull::new(object).ok_or_else(Error::last_os_error)
}

/// Returns the error of a call of the library, whose results are numbers of errors.
fn checked(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::from_raw_os_error(result.abs())) }
}

/// An open device.
pub(super) struct Device {
    library: &'static Library,
    context: NonNull<Context>,
    port: u8,
    gid_index: u8,
}

// SAFETY: the library locks its own objects, so any thread may use them.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device of this name, to use its port with the address of this index.
    pub(super) fn open(name: &str, port: u8, gid_index: u8) -> Result<Arc<Device>> {
        let library = library()?;
        // SAFETY: the library may be asked for its devices without a place for their number.
        let list = created(unsafe { (library.get_device_list)(null_mut()) })?;
        let mut device = list.as_ptr();
        let context = loop {
            // SAFETY: the list ends with a null pointer, which ends the loop.
            let candidate = unsafe { *device };
            if candidate.is_null() {
                break Err(Error::new(ErrorKind::NotFound, format!("libibverbs does not know the device {name}")));
            }
            // SAFETY: the device is of the list, which is not freed yet. Its name ends with a zero.
            let found = unsafe { CStr::from_ptr((library.get_device_name)(candidate)) };
            if found.to_bytes() == name.as_bytes() {
                // SAFETY: the device is of the list, which is not freed yet.
                break created(unsafe { (library.open_device)(candidate) });
            }
            // SAFETY: this element is not the last one.
            device = unsafe { device.add(1) };
        };
        // SAFETY: the list is freed once, and an open device does not need it.
        unsafe { (library.free_device_list)(list.as_ptr()) };
        Ok(Arc::new(Device { library, context: context?, port, gid_index }))
    }

    fn context(&self) -> &Context {
        // SAFETY: the context is open as long as the device exists, and its functions do not change.
        unsafe { self.context.as_ref() }
    }

    /// Returns the path to the port of another machine with this address.
    fn path_to(&self, gid: [u8; 16]) -> AhAttr {
        let half = |at: usize| u64::from_ne_bytes(gid[at..at + 8].try_into().expect("the range has eight bytes"));
        AhAttr {
            dgid: [half(0), half(8)],
            sgid_index: self.gid_index,
            hop_limit: 64,
            is_global: 1,
            port_num: self.port,
            ..AhAttr::default()
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all other objects keep the device alive, so none depends on it any more.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// A protection domain: a peer of a queue pair of one domain cannot write a region of another, even if it knows the key.
pub(super) struct Domain {
    device: Arc<Device>,
    domain: NonNull<Opaque>,
}

// SAFETY: as for the device.
unsafe impl Send for Domain {}
// SAFETY: as for the device.
unsafe impl Sync for Domain {}

impl Domain {
    /// Creates a domain without objects.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Domain>> {
        // SAFETY: the context is open.
        let domain = created(unsafe { (device.library.alloc_pd)(device.context.as_ptr()) })?;
        Ok(Arc::new(Domain { device: device.clone(), domain }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the objects of the domain keep it alive, so none depends on it any more.
        unsafe { (self.device.library.dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Memory that the network card of a device can access.
pub(super) struct Region {
    domain: Arc<Domain>,
    words: Box<[AtomicU64]>,
    registration: NonNull<Mr>,
}

// SAFETY: as for the device; the memory consists of atomic words.
unsafe impl Send for Region {}

impl Region {
    /// Registers memory of this many words. With `is_remote`, a peer that knows its key may write it.
    pub(super) fn new(domain: &Arc<Domain>, words: usize, is_remote: bool) -> Result<Region> {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let access = ACCESS_LOCAL_WRITE | if is_remote { ACCESS_REMOTE_WRITE } else { 0 };
        let register = domain.device.library.reg_mr;
        let (start, size) = (words.as_ptr().cast_mut().cast(), size_of_val(&*words));
        // SAFETY: the memory belongs to the region, which deregisters it before it is freed. All accesses to it are
        // those of atomic words, so the card may change it at any time.
        let registration = created(unsafe { register(domain.domain.as_ptr(), start, size, access.cast_signed()) })?;
        Ok(Region { domain: domain.clone(), words, registration })
    }

    /// Returns the words of the memory.
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns the address of the memory.
    pub(super) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// Returns the key with which a peer may write the memory.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the registration exists as long as the region.
        unsafe { self.registration.as_ref() }.rkey
    }

    /// Returns the part of the memory that begins there.
    pub(super) fn part(&self, start: usize, size: usize) -> RegionPart<'_> {
        assert!(start + size <= size_of_val(&*self.words), "the range is in the region");
        RegionPart { region: self, start, size }
    }
}

/// A part of a region.
pub(super) struct RegionPart<'r> {
    region: &'r Region,
    start: usize,
    size: usize,
}

impl RegionPart<'_> {
    fn element(self) -> Sge {
        // SAFETY: the registration exists as long as the region.
        let lkey = unsafe { self.region.registration.as_ref() }.lkey;
        Sge { addr: self.region.address() + self.start as u64, length: self.size as u32, lkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the registration is ended once, before the memory is freed.
        if unsafe { (self.domain.device.library.dereg_mr)(self.registration.as_ptr()) } != 0 {
            // The card may still have access, so the memory is never freed.
            mem::forget(mem::take(&mut self.words));
        }
    }
}

/// Tells about completions by a file descriptor.
pub(super) struct Channel {
    device: Arc<Device>,
    channel: NonNull<CompChannel>,
}

// SAFETY: as for the device.
unsafe impl Send for Channel {}
// SAFETY: as for the device.
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates a channel whose calls do not wait.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Channel>> {
        // SAFETY: the context is open.
        let channel = created(unsafe { (device.library.create_comp_channel)(device.context.as_ptr()) })?;
        let channel = Arc::new(Channel { device: device.clone(), channel });
        rustix::io::ioctl_fionbio(&*channel, true)?;
        Ok(channel)
    }

    /// Returns the word of a queue that has raised an event.
    pub(super) fn next_event(&self) -> Option<u64> {
        let (mut queue, mut word) = (null_mut(), null_mut());
        // SAFETY: the channel exists. The call writes the queue and its word if it returns 0.
        let result =
            unsafe { (self.device.library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut word) };
        if result != 0 {
            return None;
        }
        // SAFETY: the queue has just raised one event. It exists, because the library forgets the events of a queue that
        // is destroyed, and queues are destroyed by the thread that makes this call.
        unsafe { (self.device.library.ack_cq_events)(queue, 1) };
        Some(word as u64)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel and its descriptor exist as long as this object.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the queues that use the channel keep it alive, so it is destroyed after them, once.
        unsafe { (self.device.library.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A completion of a send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// The number that was given with it.
    pub(super) id: u64,
    /// The bytes that arrived, of a receive.
    pub(super) size: usize,
    /// It succeeded. Otherwise the queue pair moves nothing any more.
    pub(super) is_success: bool,
}

/// A queue of completions.
struct CompletionQueue {
    device: Arc<Device>,
    /// Keeps it alive.
    _channel: Option<Arc<Channel>>,
    queue: NonNull<Opaque>,
}

impl CompletionQueue {
    /// Creates a queue of this size. With a channel, it raises events there, with this word.
    fn new(device: &Arc<Device>, size: u32, events: Option<(&Arc<Channel>, u64)>) -> Result<CompletionQueue> {
        let channel = events.map_or(null_mut(), |(channel, _)| channel.channel.as_ptr());
        let word = events.map_or(0, |(_, word)| word) as *mut c_void;
        let (create, context) = (device.library.create_cq, device.context.as_ptr());
        // SAFETY: the context is open, and the channel is null or exists as long as the queue. The library only returns
        // the word.
        let queue = created(unsafe { create(context, size.cast_signed(), word, channel, 0) })?;
        Ok(CompletionQueue { device: device.clone(), _channel: events.map(|(channel, _)| channel.clone()), queue })
    }

    fn poll(&self) -> Option<Completion> {
        let mut completion = Wc::default();
        // SAFETY: the queue exists, and there is memory for the one completion that is asked for.
        let count = unsafe { (self.device.context().poll_cq)(self.queue.as_ptr(), 1, &raw mut completion) };
        let Wc { wr_id: id, status, byte_len, .. } = completion;
        (count > 0).then_some(Completion { id, size: byte_len as usize, is_success: status == 0 })
    }

    fn arm(&self) -> Result<()> {
        // SAFETY: the queue exists.
        checked(unsafe { (self.device.context().req_notify_cq)(self.queue.as_ptr(), 0) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pair that uses it was destroyed before. All events were acknowledged, so the call does not
        // wait.
        unsafe { (self.device.library.destroy_cq)(self.queue.as_ptr()) };
    }
}

/// The kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unreliable and connected: RDMA WRITEs.
    Connected,
    /// Unreliable datagrams, for senders that know this key.
    Datagrams {
        /// The key.
        key: u32,
    },
}

/// The destination of a send.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// Memory of the connected peer.
    Memory {
        /// Its address there.
        address: u64,
        /// Its key.
        key: u32,
        /// The peer gets a completion.
        wakes: bool,
    },
    /// A queue pair for datagrams.
    Datagram {
        /// The machine.
        machine: &'a AddressHandle,
        /// The number of the queue pair.
        pair: u32,
        /// Its key.
        key: u32,
    },
}

/// A queue pair, with its two queues of completions. It is used by one thread at a time.
pub(super) struct QueuePair {
    domain: Arc<Domain>,
    pair: NonNull<Qp>,
    inline_max: usize,
    sends: CompletionQueue,
    receives: CompletionQueue,
}

// SAFETY: as for the device.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Creates a queue pair that may have this number of sends and receives in flight. With `events`, receives raise them.
    pub(super) fn new(
        domain: &Arc<Domain>,
        kind: Kind,
        [sends_max, receives_max]: [u32; 2],
        inline_wanted: u32,
        events: Option<(&Arc<Channel>, u64)>,
    ) -> Result<QueuePair> {
        let device = &domain.device;
        let sends = CompletionQueue::new(device, sends_max, None)?;
        let receives = CompletionQueue::new(device, receives_max, events)?;
        let mut wanted = QpInitAttr {
            qp_context: null_mut(),
            send_cq: sends.queue.as_ptr(),
            recv_cq: receives.queue.as_ptr(),
            srq: null_mut(),
            cap: QpCap {
                max_send_wr: sends_max,
                max_recv_wr: receives_max,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_wanted,
            },
            qp_type: if kind == Kind::Connected { QPT_UC } else { QPT_UD },
            sq_sig_all: 0,
        };
        // SAFETY: the domain and both queues exist as long as the pair. The call writes the limits that it grants.
        let pair = created(unsafe { (device.library.create_qp)(domain.domain.as_ptr(), &raw mut wanted) })?;
        let inline_max = wanted.cap.max_inline_data as usize;
        let pair = QueuePair { domain: domain.clone(), pair, inline_max, sends, receives };
        let mut state = QpAttr { qp_state: QPS_INIT, port_num: device.port, ..QpAttr::default() };
        let mask = match kind {
            Kind::Connected => {
                state.qp_access_flags = ACCESS_REMOTE_WRITE;
                QP_ACCESS_FLAGS
            }
            Kind::Datagrams { key } => {
                state.qkey = key;
                QP_QKEY
            }
        };
        pair.modify(&mut state, QP_STATE | QP_PKEY_INDEX | QP_PORT | mask)?;
        Ok(pair)
    }

    fn modify(&self, state: &mut QpAttr, mask: c_int) -> Result<()> {
        // SAFETY: the pair exists, and the call reads the fields that the mask names.
        checked(unsafe { (self.domain.device.library.modify_qp)(self.pair.as_ptr(), &raw mut *state, mask) })
    }

    /// Returns its number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the pair exists, and its number does not change.
        unsafe { self.pair.as_ref() }.qp_num
    }

    /// Connects a pair of the kind [`Kind::Connected`] with one of another machine. Each side begins to number its
    /// packets at a number that the other side knows.
    pub(super) fn connect(&self, gid: [u8; 16], peer: u32, own_start: u32, peer_start: u32) -> Result<()> {
        let mut state = QpAttr {
            qp_state: QPS_RTR,
            path_mtu: MTU_1024,
            dest_qp_num: peer,
            rq_psn: peer_start,
            ah_attr: self.domain.device.path_to(gid),
            ..QpAttr::default()
        };
        self.modify(&mut state, QP_STATE | QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN)?;
        let mut state = QpAttr { qp_state: QPS_RTS, sq_psn: own_start, ..QpAttr::default() };
        self.modify(&mut state, QP_STATE | QP_SQ_PSN)
    }

    /// Lets a pair of the kind [`Kind::Datagrams`] begin.
    pub(super) fn begin(&self) -> Result<()> {
        self.modify(&mut QpAttr { qp_state: QPS_RTR, ..QpAttr::default() }, QP_STATE)?;
        self.modify(&mut QpAttr { qp_state: QPS_RTS, ..QpAttr::default() }, QP_STATE | QP_SQ_PSN)
    }

    /// Gives the card a part of a region for a datagram that arrives, or no memory for a write that raises a completion.
    pub(super) fn receive(&self, id: u64, memory: Option<RegionPart<'_>>) -> Result<()> {
        let mut element = memory.map(RegionPart::element);
        let sg_list = element.as_mut().map_or(null_mut(), |element| &raw mut *element);
        let mut request = RecvWr { wr_id: id, next: null_mut(), sg_list, num_sge: c_int::from(!sg_list.is_null()) };
        let (mut refused, post) = (null_mut(), self.domain.device.context().post_recv);
        // SAFETY: the pair exists, and the request is read before the call returns. The memory is that of a region, which
        // the card may access until it is deregistered.
        checked(unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut refused) })
    }

    /// Sends bytes of a region. Short ones are copied into the queue. With `is_signalled`, a completion tells that it and
    /// all sends before it are done.
    pub(super) fn send(&self, id: u64, memory: RegionPart<'_>, target: Target<'_>, is_signalled: bool) -> Result<()> {
        let mut element = memory.element();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let mut request = SendWr {
            wr_id: id,
            next: null_mut(),
            sg_list: &raw mut element,
            num_sge: 1,
            opcode: WR_SEND,
            send_flags: flag(is_signalled, SEND_SIGNALED)
                | flag(element.length as usize <= self.inline_max, SEND_INLINE),
            imm_data: 0,
            address_or_handle: 0,
            rkey_or_qpn: 0,
            remote_qkey: 0,
            unused: [0; 9],
        };
        match target {
            Target::Memory { address, key, wakes } => {
                request.opcode = if wakes { WR_RDMA_WRITE_WITH_IMM } else { WR_RDMA_WRITE };
                (request.address_or_handle, request.rkey_or_qpn) = (address, key);
            }
            Target::Datagram { machine, pair, key } => {
                request.address_or_handle = machine.handle.as_ptr() as u64;
                (request.rkey_or_qpn, request.remote_qkey) = (pair, key);
            }
        }
        let mut refused = null_mut();
        // SAFETY: the pair and the address handle exist, and the request is read before the call returns. The memory is
        // that of a region, which the card may access until it is deregistered. Its words are atomic.
        let result =
            unsafe { (self.domain.device.context().post_send)(self.pair.as_ptr(), &raw mut request, &raw mut refused) };
        checked(result)
    }

    /// Returns the next completion of a send.
    pub(super) fn next_sent(&self) -> Option<Completion> {
        self.sends.poll()
    }

    /// Returns the next completion of a receive.
    pub(super) fn next_received(&self) -> Option<Completion> {
        self.receives.poll()
    }

    /// Asks for an event with the next completion of a receive. Those that are already there raise none.
    pub(super) fn arm(&self) -> Result<()> {
        self.receives.arm()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the pair is destroyed once, before its queues.
        unsafe { (self.domain.device.library.destroy_qp)(self.pair.as_ptr()) };
    }
}

/// The path to another machine, for datagrams.
pub(super) struct AddressHandle {
    domain: Arc<Domain>,
    handle: NonNull<Opaque>,
}

// SAFETY: as for the device.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// Finds the path to the machine with this address.
    pub(super) fn new(domain: &Arc<Domain>, gid: [u8; 16]) -> Result<AddressHandle> {
        let mut path = domain.device.path_to(gid);
        // SAFETY: the domain exists, and the call reads the path.
        let handle = created(unsafe { (domain.device.library.create_ah)(domain.domain.as_ptr(), &raw mut path) })?;
        Ok(AddressHandle { domain: domain.clone(), handle })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is destroyed once. The datagrams that use it have left, or their queue pair was destroyed:
        // `RdmaPort` keeps the handle until then.
        unsafe { (self.domain.device.library.destroy_ah)(self.handle.as_ptr()) };
    }
}
