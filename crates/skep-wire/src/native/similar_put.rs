//! The encoding of puts whose keys and values have the sizes of those before. They are most of a log, and of the requests of a
//! load, so they have a path of their own.
//!
//! A *short* put has a key of eight to sixteen bytes and a value of at most eight. Its bytes are copied by a few moves of a
//! constant size, which overlap:
//!
//! ```text
//! 0        1                                       1 + key size
//! | opcode | first eight of the key |              | value, up to eight | cut off, or overwritten by the next put
//!                    | last eight of the key       |
//! ```

use skep_core::operation::{Operation, PutCondition, Request};

use super::encoder_registers::{EncoderRegisters, HEAD_SIZE, head_of_short};
use super::opcode::{Opcode, SAME_SIZES, SAME_VALUE};

/// Bytes that a short put takes at most.
const SHORT_SIZE: usize = 1 + 3 * HEAD_SIZE;
/// Puts that are appended together at most: the room for them is filled with zeros first.
const COUNT_MAX: usize = 64;

/// Appends a put of the same sizes as the operations before it, as it would be encoded among others.
#[inline]
pub(super) fn encode(
    key: &[u8],
    value: &[u8],
    registers: &mut EncoderRegisters,
    output: &mut Vec<u8>,
    size_max: usize,
) -> bool {
    let head = head_of(value);
    let same_value = head == registers.operand_head
        && (value.len() <= HEAD_SIZE || output[registers.operand_start..].starts_with(value));
    let size = 1 + key.len() + if same_value { 0 } else { value.len() };
    if output.len() + size > size_max {
        return false;
    }
    output.reserve(size);
    output.push(opcode(same_value));
    output.extend_from_slice(key);
    if !same_value {
        (registers.operand_start, registers.operand_head) = (output.len(), head);
        output.extend_from_slice(value);
    }
    true
}

/// Appends requests as [`encode`] does, up to the first one that is not such a put, is not short, is not included, or has no
/// room. Returns their number.
pub(super) fn encode_all(
    requests: &[Request<'_>],
    is_included: impl Fn(usize) -> bool,
    registers: &mut EncoderRegisters,
    output: &mut Vec<u8>,
    size_max: usize,
) -> usize {
    let (Some(key_size), Some(value_size)) = (registers.key_size, registers.operand_size) else { return 0 };
    let (key_size, value_size) = (usize::from(key_size), value_size as usize);
    if !(HEAD_SIZE..=2 * HEAD_SIZE).contains(&key_size) || value_size > HEAD_SIZE {
        return 0;
    }
    let value_of = |index: usize| match requests[index].operation {
        Operation::Put { value, condition: PutCondition::Always }
            if requests[index].key.len() == key_size && value.len() == value_size && is_included(index) =>
        {
            Some(value)
        }
        _ => None,
    };
    let (start, size) = (output.len(), 1 + key_size + value_size);
    let count_max = requests.len().min(COUNT_MAX).min(size_max.saturating_sub(start) / size);
    if count_max == 0 || value_of(0).is_none() {
        return 0;
    }
    output.resize(start + count_max * size + SHORT_SIZE, 0);
    // The loop keeps these in registers of the processor.
    let (mut offset, mut head, mut value_start) = (start, registers.operand_head, registers.operand_start);
    let mut count = 0;
    for (index, request) in requests[..count_max].iter().enumerate() {
        let Some(value) = value_of(index) else { break };
        let (Some(first), Some(last)) = (request.key.first_chunk(), request.key.last_chunk()) else { break };
        let Some(room) = output.get_mut(offset..offset + SHORT_SIZE) else { break };
        let new_head = head_of(value);
        let same_value = new_head == head;
        room[0] = opcode(same_value);
        room[1..1 + HEAD_SIZE].copy_from_slice(first as &[u8; HEAD_SIZE]);
        let end = 1 + key_size;
        room[end - HEAD_SIZE..end].copy_from_slice(last as &[u8; HEAD_SIZE]);
        room[end..end + HEAD_SIZE].copy_from_slice(&new_head.to_le_bytes());
        offset += end;
        if !same_value {
            (head, value_start) = (new_head, offset);
            offset += value_size;
        }
        count += 1;
    }
    output.truncate(offset);
    (registers.operand_head, registers.operand_start) = (head, value_start);
    count
}

/// Returns the first bytes of a value as a number, at most eight.
#[inline]
fn head_of(value: &[u8]) -> u64 {
    value.first_chunk().map_or_else(|| head_of_short(value), |head| u64::from_le_bytes(*head))
}

#[inline]
fn opcode(same_value: bool) -> u8 {
    Opcode::Put as u8 | SAME_SIZES | if same_value { SAME_VALUE } else { 0 }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition, Request};

    use super::COUNT_MAX;
    use crate::native::RequestFrameEncoder;

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
        Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
    }

    /// Encodes requests one by one, or as many together as possible. Leaves out every request whose number is a multiple of
    /// 7, and ends the frame at its first request that does not fit. Returns the bytes, and the number of requests that were
    /// appended together.
    fn encode(requests: &[Request<'_>], size_max: usize, are_together: bool) -> (Vec<u8>, usize) {
        let is_included = |index: usize| !index.is_multiple_of(7);
        let (mut output, mut index, mut together) = (vec![9; 3], 0, 0);
        let mut frame = RequestFrameEncoder::begin(&mut output, 1, 0, size_max);
        while index < requests.len() {
            if are_together {
                let first = index;
                let included = |next: usize| is_included(first + next);
                let count = frame.push_similar_puts(&mut output, &requests[index..], included);
                assert!(count <= COUNT_MAX);
                (index, together) = (index + count, together + count);
            }
            let Some(request) = requests.get(index) else { break };
            if is_included(index) && !frame.push(&mut output, request) {
                break;
            }
            index += 1;
        }
        frame.finish(&mut output);
        (output, together)
    }

    #[test]
    fn puts_that_are_appended_together_have_the_bytes_of_single_ones() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut together = 0;
        for key_size in [1, 7, 8, 9, 12, 15, 16, 17] {
            for value_size in [0, 1, 2, 3, 4, 7, 8, 9] {
                let mut requests: Vec<Request<'_>> = (0..200)
                    .map(|number| {
                        // Some values are those before.
                        let start = number / 3 * 5;
                        put(&bytes[number..number + key_size], &bytes[start..start + value_size])
                    })
                    .collect();
                for (number, key) in [(50, b"other".as_slice()), (90, b"other size")] {
                    requests[number] = Request { key, operation: Operation::Get };
                    requests[number + 3] = put(key, b"value of another size");
                    requests[number + 5].operation = Operation::Put { value: b"", condition: PutCondition::IfAbsent };
                }
                for size_max in [usize::MAX / 2, 2000, 100] {
                    let (single, _) = encode(&requests, size_max, false);
                    let (encoded, count) = encode(&requests, size_max, true);
                    assert_eq!(
                        encoded, single,
                        "keys of {key_size}, values of {value_size}, frame of {size_max} bytes"
                    );
                    let is_short = (8..=16).contains(&key_size) && value_size <= 8;
                    assert_eq!(count > 0, is_short, "keys of {key_size}, values of {value_size}");
                    together += count;
                }
            }
        }
        assert!(together > 5000, "{together}");
    }
}
