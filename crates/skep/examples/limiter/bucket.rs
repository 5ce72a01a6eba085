//! A bucket of tokens, and the function that takes one: as the source of a module, and in this process.
//!
//! ```text
//! 0        4        8    16
//! │ tokens │ unused │ at │       little-endian
//! ```

/// The module of the function.
pub(crate) const SOURCE: &str = "
mod limiter {
    struct Bucket { tokens: u32, unused: u32, at: u64 }

    /// Takes a token at the time `now`, if there is one. `rate` tokens flow in at each moment.
    #[update]
    fn take(b: &mut Bucket, now: u64, rate: u32, size: u32) -> bool {
        let new = now.saturating_sub(b.at) as u32 * rate;
        let room = size.saturating_sub(b.tokens);
        b.at = b.at.max(now);
        b.unused += new.saturating_sub(room);
        b.tokens += new.min(room);
        let passes = b.tokens > 0;
        if passes { b.tokens -= 1; }
        passes
    }
}
";

/// Bytes of a bucket.
pub(crate) const BUCKET_SIZE: usize = 16;

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) tokens: u32,
    /// Tokens that have found the bucket full.
    pub(crate) unused: u32,
    /// The latest time of a request.
    pub(crate) at: u64,
}

impl Bucket {
    /// Decodes the value of a key.
    pub(crate) fn decode(value: &[u8]) -> Result<Bucket, String> {
        let bytes: [u8; BUCKET_SIZE] =
            value.try_into().map_err(|_| format!("a bucket has {BUCKET_SIZE} bytes, not {}", value.len()))?;
        let bits = u128::from_le_bytes(bytes);
        Ok(Bucket { tokens: bits as u32, unused: (bits >> 32) as u32, at: (bits >> 64) as u64 })
    }

    /// Encodes the value of a key.
    pub(crate) fn encode(self) -> Vec<u8> {
        let Bucket { tokens, unused, at } = self;
        [&tokens.to_le_bytes()[..], &unused.to_le_bytes(), &at.to_le_bytes()].concat()
    }

    /// Does what the function of the module does.
    pub(crate) fn take(&mut self, now: u64, rate: u32, size: u32) -> bool {
        let new = (now.saturating_sub(self.at) as u32).wrapping_mul(rate);
        let room = size.saturating_sub(self.tokens);
        self.at = self.at.max(now);
        self.unused = self.unused.wrapping_add(new.saturating_sub(room));
        self.tokens += new.min(room);
        let passes = self.tokens > 0;
        self.tokens -= u32::from(passes);
        passes
    }

    /// Checks that this is the bucket after some tokens were taken, and the last request came at the time `last`.
    pub(crate) fn check(self, taken: u64, last: u64, rate: u32, size: u32) -> Result<(), String> {
        let Bucket { tokens, unused, at } = self;
        let all = last * u64::from(rate);
        if at != last {
            return Err(format!("the last request came at {last}, and the bucket has {at}"));
        }
        if tokens > size || taken + u64::from(tokens) + u64::from(unused) != all {
            return Err(format!("of {all} tokens, {taken} were taken, {tokens} are left, and {unused} were not used"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use skep::functions::{Call, CallReply, compile};
    use skep::{Operation, Replies, Reply, Request, Store, StoreSettings};

    use super::{BUCKET_SIZE, Bucket, SOURCE};

    #[test]
    fn the_module_does_the_same() {
        let mut store = Store::open(&StoreSettings::growing(16 << 20, 0x5eed)).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let function = compile(SOURCE).unwrap()[0];
        let mut bucket = Bucket::default();
        let mut taken = 0;
        for step in 0_u64..1000 {
            // The time stands still, jumps, and comes too late.
            let now = 1 + step * 7 / 10 + step % 3 * 2;
            let (rate, size) = (3_u32, 5_u32);
            let operands = [&now.to_le_bytes()[..], &rate.to_le_bytes(), &size.to_le_bytes()].concat();
            let initial = Some(&[0; BUCKET_SIZE][..]);
            let call = Call { function, vectors: 0, operands: &operands, initial, reply: CallReply::Result };
            let requests = [
                Request { key: b"k", operation: Operation::Call(call) },
                Request { key: b"k", operation: Operation::Get },
            ];
            store.execute(&requests, &mut replies);
            let passes = bucket.take(now, rate, size);
            taken += u64::from(passes);
            assert_eq!(replies.get(0), Reply::Value(&[u8::from(passes)]), "step {step}");
            assert_eq!(replies.get(1), Reply::Value(&bucket.encode()), "step {step}");
            assert_eq!(bucket.check(taken, bucket.at, rate, size), Ok(()));
        }
        assert!(bucket.check(taken + 1, bucket.at, 3, 5).is_err() && bucket.check(taken, bucket.at + 1, 3, 5).is_err());
        assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
    }
}
