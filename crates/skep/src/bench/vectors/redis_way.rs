//! The ways to increment the elements of vectors in a redis-server.
//!
//! ```text
//! way                  request                               reply
//! GETRANGE, SETRANGE   GETRANGE; SETRANGE with the changed   the vector; its size
//! BITFIELD             one INCRBY for each element           the new elements
//! Lua                  EVALSHA: GET, a loop, SET             one
//! ```
//!
//! BITFIELD has only integers, so its vectors are of u32. It is left out for large vectors: its requests are several
//! times as large as they are.

use std::fmt::Display;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, Pipeline, Value};
use skep_measure::Work;

use super::corpus::Order;
use super::way::{ELEMENT_SIZE, add_one};
use crate::failure::Failure;

/// The largest vectors that BITFIELD changes.
const BITFIELD_SIZE_MAX: usize = 4 << 10;
/// The most keys that are set or deleted at once, and the most bytes of their values.
const AT_ONCE: usize = 1000;
const AT_ONCE_SIZE: usize = 1 << 20;

/// Increments a vector, whose size is a multiple of 64 B: 16 elements a turn of the loop.
const SCRIPT: &str = "
local form = '<' .. string.rep('f', 16)
local old, new = redis.call('GET', KEYS[1]), {}
for at = 1, #old, 64 do
    local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = struct.unpack(form, old, at)
    new[#new + 1] = struct.pack(form, a + 1, b + 1, c + 1, d + 1, e + 1, f + 1, g + 1, h + 1,
        i + 1, j + 1, k + 1, l + 1, m + 1, n + 1, o + 1, p + 1)
end
redis.call('SET', KEYS[1], table.concat(new))
return 1
";

/// A way to increment the elements of vectors in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisWay {
    SetRange,
    Lua,
    Bitfield,
}

impl RedisWay {
    /// Returns the ways for vectors of this size.
    pub(super) fn of_size(size: usize) -> &'static [RedisWay] {
        let all = &[RedisWay::SetRange, RedisWay::Lua, RedisWay::Bitfield];
        if size <= BITFIELD_SIZE_MAX { all } else { &all[..2] }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RedisWay::SetRange => "GETRANGE, SETRANGE",
            RedisWay::Lua => "Lua",
            RedisWay::Bitfield => "BITFIELD, u32",
        }
    }

    /// Returns the element one. Vectors of each type have keys of their own.
    fn one(self) -> [u8; ELEMENT_SIZE] {
        if self == RedisWay::Bitfield { 1_u32.to_be_bytes() } else { 1_f32.to_le_bytes() }
    }

    /// Returns an element plus one.
    fn next(self, element: [u8; ELEMENT_SIZE]) -> [u8; ELEMENT_SIZE] {
        match self {
            RedisWay::Bitfield => (u32::from_be_bytes(element) + 1).to_be_bytes(),
            RedisWay::SetRange | RedisWay::Lua => (f32::from_le_bytes(element) + 1.0).to_le_bytes(),
        }
    }

    fn key(self, number: usize) -> String {
        let element = if self == RedisWay::Bitfield { "u32" } else { "f32" };
        format!("bench:vectors:{element}:{number}")
    }
}

/// A redis-server with vectors of one size.
pub(super) struct Redis {
    connection: Connection,
    /// The number of the script.
    script: String,
    size: usize,
}

impl Redis {
    /// Connects to a server, and loads the script.
    pub(super) fn connect(address: &str) -> Result<Redis, Failure> {
        let refused = |error| failure(&format!("redis-server at {address}"), &error);
        let client = redis::Client::open(format!("redis://{address}")).map_err(refused)?;
        let mut connection = client.get_connection().map_err(refused)?;
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(&mut connection).map_err(refused)?;
        Ok(Redis { connection, script, size: 0 })
    }

    /// Sets `count` vectors of this size, whose elements are one, and checks that all ways increment them.
    pub(super) fn load(&mut self, size: usize, count: usize) -> Result<(), Failure> {
        self.size = size;
        for way in [RedisWay::SetRange, RedisWay::Bitfield] {
            if RedisWay::of_size(size).contains(&way) {
                let value = way.one().repeat(size / ELEMENT_SIZE);
                let at_once = (AT_ONCE_SIZE / size).clamp(1, AT_ONCE);
                self.on_all(count, at_once, |number| command("SET", &way.key(number)).arg(&value).clone())?;
            }
        }
        RedisWay::of_size(size).iter().try_for_each(|way| self.check(*way))
    }

    /// Deletes these vectors.
    pub(super) fn unload(&mut self, count: usize) -> Result<(), Failure> {
        [RedisWay::SetRange, RedisWay::Bitfield]
            .into_iter()
            .try_for_each(|way| self.on_all(count, AT_ONCE, |number| command("DEL", &way.key(number))))
    }

    /// Sends a command for each vector.
    fn on_all(&mut self, count: usize, at_once: usize, command: impl Fn(usize) -> Cmd) -> Result<(), Failure> {
        for first in (0..count).step_by(at_once) {
            let pipeline = pipeline((first..count.min(first + at_once)).map(&command));
            self.execute(&pipeline)?;
        }
        Ok(())
    }

    /// Changes batches of vectors for at least this time. An operation is a changed byte.
    pub(super) fn run(&mut self, way: RedisWay, order: &mut Order, at_least: Duration) -> Result<Work, Failure> {
        let mut work = Work::default();
        while work.spent < at_least {
            let numbers = order.take();
            work.add(self.step(way, numbers)?, numbers.len() * self.size);
        }
        Ok(work)
    }

    /// Changes these vectors. The time does not include that of building the requests that need no reply.
    pub(super) fn step(&mut self, way: RedisWay, numbers: &[usize]) -> Result<Duration, Failure> {
        let keys: Vec<String> = numbers.iter().map(|number| way.key(*number)).collect();
        match way {
            RedisWay::SetRange => self.write_back(&keys),
            RedisWay::Lua => {
                let call = |key| redis::cmd("EVALSHA").arg(&self.script).arg(1).arg(key).clone();
                self.time(&pipeline(keys.iter().map(call)))
            }
            RedisWay::Bitfield => {
                let increment = |key: &String| {
                    let mut command = command("BITFIELD", key);
                    for element in 0..self.size / ELEMENT_SIZE {
                        command.arg("INCRBY").arg("u32").arg(format!("#{element}")).arg(1);
                    }
                    command
                };
                self.time(&pipeline(keys.iter().map(increment)))
            }
        }
    }

    /// Fetches vectors, increments their elements and writes them.
    fn write_back(&mut self, keys: &[String]) -> Result<Duration, Failure> {
        let fetch = pipeline(keys.iter().map(|key| command("GETRANGE", key).arg(0).arg(-1).clone()));
        let mut changed = vec![0; self.size];
        let begun = Instant::now();
        let vectors: Vec<Vec<u8>> =
            fetch.query(&mut self.connection).map_err(|error| failure("redis-server", &error))?;
        let mut write = Pipeline::with_capacity(keys.len());
        for (key, old) in keys.iter().zip(&vectors) {
            add_one(old, &mut changed);
            write.cmd("SETRANGE").arg(key).arg(0).arg(&changed);
        }
        self.execute(&write)?;
        Ok(begun.elapsed())
    }

    fn time(&mut self, pipeline: &Pipeline) -> Result<Duration, Failure> {
        let begun = Instant::now();
        self.execute(pipeline)?;
        Ok(begun.elapsed())
    }

    /// Executes a batch. An error among its replies is a failure.
    fn execute(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        pipeline.query(&mut self.connection).map_err(|error| failure("redis-server", &error))
    }

    fn vector(&mut self, way: RedisWay, number: usize) -> Result<Vec<u8>, Failure> {
        let value = command("GET", &way.key(number)).query(&mut self.connection);
        value.map_err(|error| failure("redis-server", &error))
    }

    /// Checks that a way increments each element of a vector.
    fn check(&mut self, way: RedisWay) -> Result<(), Failure> {
        let mut expected = self.vector(way, 0)?;
        expected.as_chunks_mut().0.iter_mut().for_each(|element| *element = way.next(*element));
        self.step(way, &[0])?;
        match self.vector(way, 0)? == expected {
            true => Ok(()),
            false => Err(failure("redis-server", &format!("{} does not increment a vector", way.name()))),
        }
    }
}

fn command(name: &str, key: &str) -> Cmd {
    redis::cmd(name).arg(key).clone()
}

fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = redis::pipe();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

fn failure(about: &str, reason: &impl Display) -> Failure {
    Failure::Runtime(format!("{about}: {}", crate::failure::reason(reason)))
}
