//! The data of libibverbs' binary interface that [`super::verbs`] uses: structures and constants of
//! `infiniband/verbs.h`, as the first version of the library (`libibverbs.so.1`) fixed them.
//!
//! The fields keep the names of the C library. The sizes and offsets at the end were printed by a C compiler. They are
//! compared with those of this file when it is compiled. Objects that only the library reads are [`Opaque`].

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

/// An object whose fields only the library knows.
pub(super) type Opaque = c_void;

/// `IBV_QPT_UC` and `IBV_QPT_UD`.
pub(super) const QPT_UC: c_uint = 3;
pub(super) const QPT_UD: c_uint = 4;
/// `IBV_QPS_INIT`, `IBV_QPS_RTR`, `IBV_QPS_RTS`.
pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;
/// `IBV_MTU_1024`.
pub(super) const MTU_1024: c_uint = 3;
/// `IBV_WR_RDMA_WRITE`, `IBV_WR_RDMA_WRITE_WITH_IMM`, `IBV_WR_SEND`.
pub(super) const WR_RDMA_WRITE: c_uint = 0;
pub(super) const WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub(super) const WR_SEND: c_uint = 2;
/// `IBV_SEND_SIGNALED`, `IBV_SEND_INLINE`.
pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_INLINE: c_uint = 1 << 3;
/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE`.
pub(super) const ACCESS_LOCAL_WRITE: c_uint = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
/// The bits of `ibv_qp_attr_mask`: they name the fields that a change of a queue pair sets.
pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_QKEY: c_int = 1 << 6;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;

/// `ibv_mr`: registered memory.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Opaque,
    pd: *mut Opaque,
    addr: *mut Opaque,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// The begin of `ibv_comp_channel`.
#[repr(C)]
pub(super) struct CompChannel {
    context: *mut Opaque,
    pub(super) fd: c_int,
}

/// The begin of `ibv_qp`: a queue pair.
#[repr(C)]
pub(super) struct Qp {
    context: *mut Opaque,
    qp_context: *mut Opaque,
    pd: *mut Opaque,
    send_cq: *mut Opaque,
    recv_cq: *mut Opaque,
    srq: *mut Opaque,
    handle: u32,
    pub(super) qp_num: u32,
}

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut Opaque,
    pub(super) send_cq: *mut Opaque,
    pub(super) recv_cq: *mut Opaque,
    pub(super) srq: *mut Opaque,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// `ibv_ah_attr`, with the `ibv_global_route` that it begins with.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AhAttr {
    /// The words of the GID keep the alignment of the union.
    pub(super) dgid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) padding: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `ibv_sge`: a part of registered memory, or of any memory if it is inlined.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `ibv_recv_wr`.
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `ibv_send_wr`, with two of the variants of its first union as three fields: `remote_addr` and `rkey` of a write, or
/// the address handle, the queue pair and its key of a datagram.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    pub(super) imm_data: u32,
    /// The remote address of a write, or the address handle of a datagram.
    pub(super) address_or_handle: u64,
    /// The remote key of a write, or the number of the queue pair of a datagram.
    pub(super) rkey_or_qpn: u32,
    /// The key of the queue pair of a datagram.
    pub(super) remote_qkey: u32,
    pub(super) unused: [u64; 9],
}

/// `ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

const _: () = {
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, imm_data) == 36);
    assert!(offset_of!(SendWr, address_or_handle) == 40 && offset_of!(SendWr, remote_qkey) == 52);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, pkey_index) == 120 && offset_of!(QpAttr, port_num) == 129);
    assert!(size_of::<QpInitAttr>() == 64 && size_of::<QpCap>() == 20);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, dlid) == 24 && offset_of!(AhAttr, is_global) == 29);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, byte_len) == 20 && offset_of!(Wc, wc_flags) == 36);
    assert!(size_of::<Sge>() == 16 && size_of::<RecvWr>() == 32);
    assert!(offset_of!(Qp, qp_num) == 52 && offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40);
    assert!(offset_of!(CompChannel, fd) == 8);
};
