//! The recovery of the ordered space: pairs of a snapshot, and effects of the log in the order of their versions.
//!
//! An effect is the whole state of its key. So one that has expired when the recovery begins is a delete: it is missing at any
//! later time. Otherwise the keys of a log of short lives, most of which the running server had freed, would not fit the
//! memory.

use skep_core::operation::{Expiry, ExpiryChange, Operation, OperationError, Request, StringWrite};
use skep_log::{BlockView, Chunk, EffectOrder, OrderedBoundary};
use skep_store::ordered::{Effect, Session};
use skep_wire::native::WireError;

/// The ordered space while it gets its keys back.
pub(super) struct OrderedReplay<'s> {
    session: Session<'s>,
    /// The time at which the recovery began, in milliseconds since 1970.
    now: u64,
    boundary: OrderedBoundary,
    order: EffectOrder,
    /// Effects that are complete and not in the snapshot. Empty between groups.
    effects: Vec<OwnedEffect>,
    pub(super) failure: Option<OperationError>,
}

struct OwnedEffect {
    version: u64,
    key: Vec<u8>,
    value: Option<(Vec<u8>, Option<Expiry>)>,
}

impl OwnedEffect {
    fn borrow(&self) -> Effect<'_> {
        let value = self.value.as_ref().map(|(value, expiry)| (&value[..], *expiry));
        Effect { version: self.version, key: &self.key, value }
    }
}

/// The value and the expiry of a key; `None` if there is no key.
type State<'a> = Option<(&'a [u8], Option<Expiry>)>;

/// Returns the state that a request of a snapshot or of an effect gives its key at this time.
fn state<'a>(request: &Request<'a>, now: u64) -> Result<State<'a>, WireError> {
    match request.operation {
        Operation::Put { value, .. } => Ok(Some((value, None))),
        Operation::StringWrite(StringWrite::Set { value, expiry, .. }) if expiry != ExpiryChange::KEEP => {
            let expiry = expiry.apply(None);
            Ok((!expiry.is_some_and(|expiry| expiry.has_passed(now))).then_some((value, expiry)))
        }
        Operation::Delete => Ok(None),
        _ => Err(WireError::UnknownOperation),
    }
}

impl<'s> OrderedReplay<'s> {
    pub(super) fn new(session: Session<'s>, now: u64) -> Self {
        OrderedReplay {
            session,
            now,
            boundary: OrderedBoundary::default(),
            order: EffectOrder::default(),
            effects: Vec::new(),
            failure: None,
        }
    }

    /// Sets which effects the snapshot contains already.
    pub(super) fn set_boundary(&mut self, boundary: OrderedBoundary) {
        self.boundary = boundary;
    }

    /// Puts the pairs of a chunk.
    pub(super) fn load(&mut self, chunk: &Chunk<'_>) -> Result<(), WireError> {
        let mut effects = Vec::new();
        for request in chunk.requests() {
            let request = request?;
            effects.push(Effect { version: 0, key: request.key, value: state(&request, self.now)? });
        }
        self.restore(&effects);
        Ok(())
    }

    fn restore(&mut self, effects: &[Effect<'_>]) {
        if let Err(error) = self.session.restore(effects) {
            self.failure.get_or_insert(error);
        }
    }

    /// Takes the effects of the next block.
    pub(super) fn block(&mut self, block: &BlockView<'_>) -> Result<(), WireError> {
        let OrderedReplay { boundary, order, effects, now, .. } = self;
        let mut failure = None;
        order.read(block, |_, version, request| {
            if boundary.applies(version, request.key) {
                match state(request, *now) {
                    Ok(value) => {
                        let value = value.map(|(value, expiry)| (value.to_vec(), expiry));
                        effects.push(OwnedEffect { version, key: request.key.to_vec(), value });
                    }
                    Err(error) => failure = Some(error),
                }
            }
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Gives the keys the states of the effects that were taken.
    pub(super) fn flush(&mut self) {
        let owned = std::mem::take(&mut self.effects);
        let effects: Vec<Effect<'_>> = owned.iter().map(OwnedEffect::borrow).collect();
        self.restore(&effects);
    }
}
