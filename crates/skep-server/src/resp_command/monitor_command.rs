//! `MONITOR`. What monitors get is made in `monitor_line.rs`.

use super::Context;
use crate::limits::MONITORS_MAX;

/// Makes the connection a monitor.
pub(super) fn monitor(context: &Context<'_>) -> Result<(), String> {
    let shared = context.shared;
    let client = shared.clients().get(&context.connection).cloned();
    let Some((client, (shard, token))) = client.and_then(|client| client.home.map(|home| (client, home))) else {
        return Err("ERR the connection ends".to_owned());
    };
    if !shared.monitors.add(context.connection, shard, token) {
        return Err(format!("ERR there are already {MONITORS_MAX} monitors"));
    }
    client.activity.monitors.set(1);
    shared.orders.change();
    Ok(())
}

/// Makes the connection an ordinary one.
pub(super) fn end(context: &Context<'_>) {
    let shared = context.shared;
    shared.monitors.remove(context.connection, &shared.memory_budget);
    if let Some(client) = shared.clients().get(&context.connection) {
        client.activity.monitors.set(0);
    }
    shared.orders.change();
}
