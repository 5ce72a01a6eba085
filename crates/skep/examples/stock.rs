//! The stock of TPC-C's New-Order transaction: a function with a condition in the server (KV-Direct, section 3.2).
//!
//! ```text
//! cargo run --release --example stock
//! ```
//!
//! An order has 5 to 15 lines. Each takes 1 to 10 pieces of an item from the stock of a warehouse (clause 2.4.2.2 of the
//! specification):
//!
//! ```text
//! quantity               q − n if q exceeds n by 10 or more, otherwise q − n + 91
//! sold, orders, remote   + n, + 1, + 1 if the warehouse is not that of the customer
//! ```
//!
//! The first line is the function `wrap`, the second one an addition of a vector: two updates for each line, all of
//! an order in one batch. Without functions, a client gets the rows, computes, and sets each one if it has not changed.
//! Each row changes at one moment, an order as a whole does not.
//!
//! A quantity of 10 to 100 stays in this range, and any two orders commute: n pieces fewer, modulo 91. So the stock must be
//! that of the same orders one after another in this process, although the clients work at the same time.

mod application;

use std::process::ExitCode;

use application::{CountingClient, Options, Target, WAYS, measure, on_threads, print_costs};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{Element, HASH_SPACE, Operation, PutCondition, Request, Shape, Update, UpdateFunction};

/// Takes the orders of TPC-C from stocks in a Skep server.
#[derive(Parser)]
struct Arguments {
    /// Warehouses.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    warehouses: u32,
    /// Items of each warehouse.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    items: u32,
    /// Orders of each client.
    #[arg(long, default_value_t = 5_000)]
    orders: u32,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("stock", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let target = Target::open(&arguments.options)?;
    let mut clients = target.clients(&arguments.options, HASH_SPACE)?;
    let count = arguments.warehouses * arguments.items;
    let orders: Vec<Vec<Order>> = (0..clients.len()).map(|client| orders(arguments, client as u64)).collect();
    let line_count: usize = orders.iter().flatten().map(Vec::len).sum();
    let first: Vec<Row> = (0..count).map(first_row).collect();
    let mut expected = first.clone();
    orders.iter().flatten().flatten().for_each(|line| expected[line.row as usize].take(line));
    println!("{count} rows, {} orders of {line_count} lines", orders.iter().map(Vec::len).sum::<usize>());
    let mut costs = Vec::new();
    for way in ["functions", "clients"] {
        let keys: Vec<_> =
            (0..count).map(|row| ["q", "s"].map(|part| target.key(format!("{way}:{part}:{row}")))).collect();
        put_rows(&mut clients[0], &keys, &first)?;
        let (_, cost) = measure(&mut clients, |clients| {
            on_threads(clients, |number, client| {
                orders[number].iter().try_for_each(|order| match way {
                    "functions" => take_by_functions(client, &keys, order),
                    _ => take_by_client(client, &keys, order),
                })
            })
        })?;
        if rows(&mut clients[0], &keys)? != expected {
            return Err(format!("{way}: the stock differs from that of the same orders one after another"));
        }
        application::delete(&mut clients[0], keys.iter().flatten())?;
        costs.push(cost);
    }
    println!("exact: all rows are those of the same orders one after another");
    print_costs(WAYS, [costs[0], costs[1]]);
    Ok(())
}

/// The pieces that are added when few are left.
const REFILL: i32 = 91;

/// The stock of an item in a warehouse.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    quantity: i32,
    /// Pieces sold, orders, and orders from other warehouses.
    sums: [u32; 3],
}

impl Row {
    const EMPTY: Row = Row { quantity: 0, sums: [0; 3] };

    /// Takes the pieces of a line, as the specification says.
    fn take(&mut self, line: &Line) {
        let pieces = line.pieces as i32;
        self.quantity =
            if self.quantity >= pieces + 10 { self.quantity - pieces } else { self.quantity - pieces + REFILL };
        self.sums.iter_mut().zip(line.sums()).for_each(|(sum, more)| *sum += more);
    }

    /// Returns the value of one of its keys: its quantity, or its sums.
    fn part(&self, part: usize) -> Vec<u8> {
        match part {
            0 => self.quantity.to_le_bytes().to_vec(),
            _ => self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect(),
        }
    }

    fn set_part(&mut self, part: usize, bytes: &[u8]) -> Result<(), String> {
        let size = || format!("a part of a row has {} bytes", bytes.len());
        match part {
            0 => self.quantity = i32::from_le_bytes(bytes.try_into().map_err(|_| size())?),
            _ => {
                let sums: [[u8; 4]; 3] = bytes.as_chunks().0.try_into().map_err(|_| size())?;
                self.sums = sums.map(u32::from_le_bytes);
            }
        }
        Ok(())
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug)]
struct Line {
    row: u32,
    pieces: u32,
    is_remote: bool,
}

impl Line {
    fn sums(&self) -> [u32; 3] {
        [self.pieces, 1, u32::from(self.is_remote)]
    }
}

type Order = Vec<Line>;

/// Returns the first stock of a row: a quantity of 10 to 100.
fn first_row(row: u32) -> Row {
    Row { quantity: Xoshiro256PlusPlus::seed_from_u64(u64::from(row)).random_range(10..=100), sums: [0; 3] }
}

/// Draws the orders of a client. An item is drawn as clause 2.1.6 says; one line of a hundred is remote.
fn orders(arguments: &Arguments, client: u64) -> Vec<Order> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(client);
    let home = client as u32 % arguments.warehouses;
    let line = |random: &mut Xoshiro256PlusPlus| {
        let number = random.random_range(0..8192_u32) | random.random_range(0..arguments.items);
        let is_remote = arguments.warehouses > 1 && random.random_range(0..100) == 0;
        let warehouse = if is_remote { (home + 1) % arguments.warehouses } else { home };
        let row = warehouse * arguments.items + number % arguments.items;
        Line { row, pieces: random.random_range(1..=10), is_remote }
    };
    (0..arguments.orders).map(|_| (0..random.random_range(5..=15)).map(|_| line(&mut random)).collect()).collect()
}

/// The keys of a row: of its quantity, and of its sums.
type Keys = [Vec<u8>; 2];

fn put_rows(client: &mut CountingClient, keys: &[Keys], rows: &[Row]) -> Result<(), String> {
    for (keys, rows) in keys.chunks(1024).zip(rows.chunks(1024)) {
        let values: Vec<_> = rows.iter().flat_map(|row| [row.part(0), row.part(1)]).collect();
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        let pairs = keys.iter().flatten().zip(&values);
        client.done(&pairs.map(|(key, value)| Request { key, operation: put(value) }).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Gets the rows of a stock.
fn rows(client: &mut CountingClient, keys: &[Keys]) -> Result<Vec<Row>, String> {
    let keys: Vec<&[u8]> = keys.iter().flatten().map(Vec::as_slice).collect();
    let mut rows = vec![Row::EMPTY; keys.len() / 2];
    for (index, value) in client.values(&keys)?.iter().enumerate() {
        rows[index / 2].set_part(index % 2, value.as_deref().unwrap_or_default())?;
    }
    Ok(rows)
}

fn take_by_functions(client: &mut CountingClient, keys: &[Keys], order: &[Line]) -> Result<(), String> {
    let operands: Vec<_> = order
        .iter()
        .map(|line| {
            let pieces = [line.pieces.to_le_bytes(), REFILL.to_le_bytes()].concat();
            (pieces, Row { sums: line.sums(), ..Row::EMPTY }.part(1))
        })
        .collect();
    let update = |function, element, shape, operand| {
        Operation::Update(Update { function, element, shape, operand, initial: None, return_old: false })
    };
    let requests = order.iter().zip(&operands).flat_map(|(line, (pieces, sums))| {
        let [of_quantity, of_sums] = &keys[line.row as usize];
        let wrap = update(UpdateFunction::WrapAround, Element::I32, Shape::ScalarToScalar, &pieces[..]);
        let add = update(UpdateFunction::Add, Element::U32, Shape::VectorToVector, &sums[..]);
        [Request { key: of_quantity, operation: wrap }, Request { key: of_sums, operation: add }]
    });
    client.done(&requests.collect::<Vec<_>>())
}

fn take_by_client(client: &mut CountingClient, keys: &[Keys], order: &[Line]) -> Result<(), String> {
    let parts: Vec<(&Line, usize)> = order.iter().flat_map(|line| [(line, 0), (line, 1)]).collect();
    let keys: Vec<&[u8]> = parts.iter().map(|(line, part)| &keys[line.row as usize][*part][..]).collect();
    client.get_compute_set(&keys, |index, old| {
        let (line, part) = parts[index];
        let mut row = Row::EMPTY;
        row.set_part(part, old.unwrap_or_default())?;
        row.take(line);
        Ok(row.part(part))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, Line, Row, run};

    #[test]
    fn clients_leave_the_stock_of_orders_one_after_another() {
        for (clients, items) in [("1", "1000"), ("4", "1000"), ("4", "3")] {
            let settings = ["stock", "--clients", clients, "--items", items, "--orders", "100"];
            assert_eq!(run(&Arguments::parse_from(settings)), Ok(()), "{clients} clients, {items} items");
        }
    }

    /// Clause 2.4.2.2: the quantity exceeds that of the line by 10 or more, or it is refilled.
    #[test]
    fn the_rule_is_that_of_the_specification() {
        for (quantity, pieces, expected) in [(100, 10, 90), (20, 10, 10), (19, 10, 100), (11, 1, 10), (10, 1, 100)] {
            let mut row = Row { quantity, sums: [7, 3, 1] };
            row.take(&Line { row: 0, pieces, is_remote: true });
            assert_eq!(row, Row { quantity: expected, sums: [7 + pieces, 4, 2] });
        }
    }
}
