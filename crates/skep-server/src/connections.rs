//! The connections of a shard, each with a token that is never used for another one.

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::vocabulary::Token;

/// The connections of a shard.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    endpoint: Option<Box<Endpoint>>,
}

impl Connections {
    /// Adds a connection.
    pub(crate) fn insert(&mut self, endpoint: Box<Endpoint>) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("file descriptors are fewer")
        });
        let slot = &mut self.slots[index as usize];
        slot.endpoint = Some(endpoint);
        Token { index, generation: slot.generation }
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<Endpoint>> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let endpoint = slot.endpoint.take()?;
        // The largest generations are left to other words in epoll.
        slot.generation = (slot.generation + 1) % (u32::MAX / 2);
        self.free.push(token.index);
        Some(endpoint)
    }

    /// Returns the connection, if it still exists.
    pub(crate) fn get(&self, token: Token) -> Option<&Endpoint> {
        let slot = self.slots.get(token.index as usize)?;
        if slot.generation == token.generation { slot.endpoint.as_deref() } else { None }
    }

    /// Returns the connection, if it still exists.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Endpoint> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.endpoint.as_deref_mut() } else { None }
    }

    /// Returns the connection without its transport, if it still exists.
    pub(crate) fn connection(&self, token: Token) -> Option<&Connection> {
        Some(&self.get(token)?.connection)
    }

    /// Returns the connection without its transport, if it still exists.
    pub(crate) fn connection_mut(&mut self, token: Token) -> Option<&mut Connection> {
        Some(&mut self.get_mut(token)?.connection)
    }

    /// Returns all connections with their tokens.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut Endpoint)> {
        (0_u32..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let token = Token { index, generation: slot.generation };
            Some((token, slot.endpoint.as_deref_mut()?))
        })
    }

    /// Returns the tokens of all connections.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.endpoint.is_some()).map(|(index, slot)| Token {
            index: u32::try_from(index).expect("indexes are made from 32 bits"),
            generation: slot.generation,
        })
    }

    /// Returns the number of slots, with and without a connection.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the connection in a slot, if there is one.
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<(Token, &mut Endpoint)> {
        let Slot { generation, endpoint } = self.slots.get_mut(slot)?;
        let index = u32::try_from(slot).expect("indexes are made from 32 bits");
        Some((Token { index, generation: *generation }, endpoint.as_deref_mut()?))
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}
