//! The records that are not strings: they are passed over, since only their own structure tells where they end.

use std::io::Read;

use super::{Kind, RdbError, RdbReader, opcode};

/// The types of pairs.
mod pair_type {
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_SET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED_SET_2: u8 = 5;
    pub(super) const MODULE_2: u8 = 7;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTEGERS: u8 = 11;
    pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_SET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    /// Valkey only: a hash whose fields expire.
    pub(super) const VALKEY_HASH_2: u8 = 22;
    /// Of the release candidates of Redis 7.4: hashes whose fields expire.
    pub(super) const REDIS_HASH_EXPIRING_OLD: u8 = 22;
    pub(super) const REDIS_HASH_LISTPACK_EXPIRING_OLD: u8 = 23;
    /// Redis only: hashes whose fields expire.
    pub(super) const REDIS_HASH_EXPIRING: u8 = 24;
    pub(super) const REDIS_HASH_LISTPACK_EXPIRING: u8 = 25;
}

/// The tags of the fields of a module's value.
mod module_tag {
    pub(super) const END: u64 = 0;
    pub(super) const SIGNED: u64 = 1;
    pub(super) const UNSIGNED: u64 = 2;
    pub(super) const FLOAT: u64 = 3;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const STRING: u64 = 5;
}

impl<R: Read> RdbReader<R> {
    /// Passes over the fields of an opcode that says nothing about strings. Returns false if the number is none of these.
    pub(super) fn skip_opcode(&mut self, number: u8) -> Result<bool, RdbError> {
        match number {
            opcode::AUXILIARY => self.auxiliary()?,
            opcode::TABLE_SIZES => self.skip_lengths(2)?,
            opcode::SLOT_INFO => self.skip_lengths(3)?,
            opcode::IDLE_TIME | opcode::RAM_LRU => self.skip_lengths(1)?,
            opcode::FREQUENCY => self.source.skip(1)?,
            opcode::MODULE_AUXILIARY => self.skip_module()?,
            opcode::SLOT_IMPORT if self.is_valkey => {
                self.skip_string()?;
                for _ in 0..self.length()? {
                    self.skip_lengths(2)?;
                }
            }
            opcode::KEY_METADATA if !self.is_valkey => {
                for _ in 0..self.length()? {
                    self.source.skip(4)?;
                    self.skip_module_fields()?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the kind of a pair by its type.
    pub(super) fn kind(&mut self, number: u8) -> Result<Kind, RdbError> {
        use pair_type::{
            HASH, HASH_LISTPACK, HASH_ZIPLIST, HASH_ZIPMAP, LIST, LIST_QUICKLIST, LIST_QUICKLIST_2, LIST_ZIPLIST,
            MODULE_2, REDIS_HASH_EXPIRING, REDIS_HASH_EXPIRING_OLD, REDIS_HASH_LISTPACK_EXPIRING,
            REDIS_HASH_LISTPACK_EXPIRING_OLD, SET, SET_INTEGERS, SET_LISTPACK, SORTED_SET, SORTED_SET_2,
            SORTED_SET_LISTPACK, SORTED_SET_ZIPLIST, STREAM, STREAM_2, STREAM_3, VALKEY_HASH_2,
        };
        Ok(match number {
            LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Kind::List,
            SET | SET_INTEGERS | SET_LISTPACK => Kind::Set,
            SORTED_SET | SORTED_SET_2 | SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => Kind::SortedSet,
            HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK => Kind::Hash,
            VALKEY_HASH_2 if self.is_valkey => Kind::Hash,
            REDIS_HASH_EXPIRING | REDIS_HASH_LISTPACK_EXPIRING if !self.is_valkey => Kind::Hash,
            REDIS_HASH_EXPIRING_OLD | REDIS_HASH_LISTPACK_EXPIRING_OLD if !self.is_valkey => Kind::Hash,
            STREAM | STREAM_2 | STREAM_3 => Kind::Stream,
            MODULE_2 => Kind::Module,
            number => return Err(self.unknown_type(number)),
        })
    }

    /// Passes over a value. The type is one that has a kind.
    pub(super) fn skip_value(&mut self, number: u8) -> Result<(), RdbError> {
        match number {
            pair_type::LIST | pair_type::SET | pair_type::LIST_QUICKLIST => self.skip_each(Self::skip_string),
            pair_type::HASH => self.skip_each(|reader| {
                reader.skip_string()?;
                reader.skip_string()
            }),
            pair_type::SORTED_SET => self.skip_each(|reader| {
                reader.skip_string()?;
                reader.skip_decimal()
            }),
            pair_type::SORTED_SET_2 => self.skip_each(|reader| {
                reader.skip_string()?;
                reader.source.skip(8)
            }),
            pair_type::LIST_QUICKLIST_2 => self.skip_each(|reader| {
                reader.skip_lengths(1)?;
                reader.skip_string()
            }),
            pair_type::VALKEY_HASH_2 if self.is_valkey => self.skip_each(|reader| {
                reader.skip_string()?;
                reader.skip_string()?;
                reader.source.skip(8)
            }),
            pair_type::REDIS_HASH_EXPIRING => {
                self.source.skip(8)?;
                self.skip_each(|reader| {
                    reader.skip_lengths(1)?;
                    reader.skip_string()?;
                    reader.skip_string()
                })
            }
            pair_type::REDIS_HASH_EXPIRING_OLD => self.skip_each(|reader| {
                reader.skip_lengths(1)?;
                reader.skip_string()?;
                reader.skip_string()
            }),
            pair_type::REDIS_HASH_LISTPACK_EXPIRING => {
                self.source.skip(8)?;
                self.skip_string()
            }
            pair_type::STREAM => self.skip_stream(1),
            pair_type::STREAM_2 => self.skip_stream(2),
            pair_type::STREAM_3 => self.skip_stream(3),
            pair_type::MODULE_2 => self.skip_module(),
            // The others are one string.
            _ => self.skip_string(),
        }
    }

    /// Passes over a count and this many elements.
    fn skip_each(&mut self, mut skip: impl FnMut(&mut Self) -> Result<(), RdbError>) -> Result<(), RdbError> {
        for _ in 0..self.length()? {
            skip(self)?;
        }
        Ok(())
    }

    fn skip_lengths(&mut self, count: u64) -> Result<(), RdbError> {
        for _ in 0..count {
            self.length()?;
        }
        Ok(())
    }

    /// Passes over a number in decimal text. Three sizes stand for a value that has no digits.
    fn skip_decimal(&mut self) -> Result<(), RdbError> {
        match self.source.byte()? {
            253..=255 => Ok(()),
            size => self.source.skip(u64::from(size)),
        }
    }

    /// Passes over a value of a module, or what a module keeps beside its values.
    fn skip_module(&mut self) -> Result<(), RdbError> {
        self.skip_lengths(1)?;
        self.skip_module_fields()
    }

    /// Passes over the functions of a library: name, engine, description if there is one, code.
    pub(super) fn skip_old_functions(&mut self) -> Result<(), RdbError> {
        self.skip_string()?;
        self.skip_string()?;
        if self.length()? != 0 {
            self.skip_string()?;
        }
        self.skip_string()
    }

    /// Passes over fields that a module has written, up to their end.
    fn skip_module_fields(&mut self) -> Result<(), RdbError> {
        loop {
            match self.length()? {
                module_tag::END => return Ok(()),
                module_tag::SIGNED | module_tag::UNSIGNED => self.skip_lengths(1)?,
                module_tag::FLOAT => self.source.skip(4)?,
                module_tag::DOUBLE => self.source.skip(8)?,
                module_tag::STRING => self.skip_string()?,
                _ => return Err(self.source.damaged("a value of a module has an unknown tag")),
            }
        }
    }

    /// Passes over a stream of format 1, 2 or 3.
    ///
    /// ```text
    /// nodes      count × (first ID, entries)
    /// stream     number of entries, last ID (2 lengths); from format 2 on: first ID, largest deleted ID, entries ever added
    /// groups     count × (name, last ID; from format 2 on: entries read; pending entries, consumers)
    /// pending    count × (ID, 16 B; time, 8 B; deliveries)
    /// consumers  count × (name; time, 8 B; in format 3 another; pending: count × ID)
    /// ```
    fn skip_stream(&mut self, format: u32) -> Result<(), RdbError> {
        self.skip_each(|reader| {
            reader.skip_string()?;
            reader.skip_string()
        })?;
        self.skip_lengths(if format >= 2 { 8 } else { 3 })?;
        self.skip_each(|reader| {
            reader.skip_string()?;
            reader.skip_lengths(if format >= 2 { 3 } else { 2 })?;
            reader.skip_each(|reader| {
                reader.source.skip(16 + 8)?;
                reader.skip_lengths(1)
            })?;
            reader.skip_each(|reader| {
                reader.skip_string()?;
                reader.source.skip(if format >= 3 { 16 } else { 8 })?;
                reader.skip_each(|reader| reader.source.skip(16))
            })
        })
    }
}
