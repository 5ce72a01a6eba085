//! The operations of a session that are measured, on the shipped store and on the counted one.

use std::time::Instant;

use skep_core::operation::{PutCondition, Range, Reply, Request};
use skep_store::processor::Replies;
use skep_store::{counted, ordered};

/// A session of one of the two stores. Its methods are those of [`ordered::Session`].
pub(super) trait Access {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool;
    fn get_batch(&mut self, keys: &[&[u8]], f: impl FnMut(Option<&[u8]>));
    fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static>;
    fn put_batch(&mut self, pairs: &[(&[u8], &[u8])], condition: PutCondition, f: impl FnMut(Reply<'static>));
    fn delete(&mut self, key: &[u8]) -> Reply<'static>;
    fn scan(&mut self, range: Range<'_>, f: impl FnMut(&[u8], &[u8]) -> bool);
    fn scan_batch(&mut self, ranges: &[Range<'_>], f: impl FnMut(usize, &[u8], &[u8]) -> bool);
    fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies, now: Instant);
    fn collect(&mut self);
}

macro_rules! access {
    ($session:ty) => {
        impl Access for $session {
            #[inline]
            fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
                self.get(key, value)
            }

            #[inline]
            fn get_batch(&mut self, keys: &[&[u8]], f: impl FnMut(Option<&[u8]>)) {
                self.get_batch(keys, f);
            }

            #[inline]
            fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static> {
                self.put(key, value, condition)
            }

            #[inline]
            fn put_batch(&mut self, pairs: &[(&[u8], &[u8])], condition: PutCondition, f: impl FnMut(Reply<'static>)) {
                self.put_batch(pairs, condition, f);
            }

            #[inline]
            fn delete(&mut self, key: &[u8]) -> Reply<'static> {
                self.delete(key)
            }

            #[inline]
            fn scan(&mut self, range: Range<'_>, f: impl FnMut(&[u8], &[u8]) -> bool) {
                self.scan(range, f);
            }

            #[inline]
            fn scan_batch(&mut self, ranges: &[Range<'_>], f: impl FnMut(usize, &[u8], &[u8]) -> bool) {
                self.scan_batch(ranges, f);
            }

            #[inline]
            fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
                self.execute(requests, replies, now);
            }

            fn collect(&mut self) {
                self.collect();
            }
        }
    };
}

access!(ordered::Session<'_>);
access!(counted::ordered::Session<'_>);
