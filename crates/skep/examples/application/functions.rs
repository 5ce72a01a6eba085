//! The load of a module of user functions, over RESP.

use std::collections::HashMap;

use redis::{FromRedisValue, RedisError, Value};
use skep::functions::FunctionHandle;

/// Loads a module, and returns the function of this name. Calls name it by its number.
pub(crate) fn load(address: &str, source: &str, name: &str) -> Result<FunctionHandle, String> {
    let failed = |error: RedisError| format!("{address}: {error}");
    let client = redis::Client::open(format!("redis://{address}")).map_err(failed)?;
    let mut connection = client.get_connection().map_err(failed)?;
    let mut load = redis::cmd("SKEP.FUNCTION");
    let _: String = load.arg("LOAD").arg("REPLACE").arg(source).query(&mut connection).map_err(failed)?;
    let modules: Vec<HashMap<String, Value>> =
        redis::cmd("SKEP.FUNCTION").arg("LIST").query(&mut connection).map_err(failed)?;
    let number = modules.into_iter().find_map(|module| number_of(module, name));
    let id = number.ok_or_else(|| format!("the module has no function {name}"))?;
    Ok(FunctionHandle { id, revision: 0, function: None })
}

/// Returns the number of a function, if a module has it. Functions are described as `update limiter.take(…) -> bool`.
fn number_of(mut module: HashMap<String, Value>, name: &str) -> Option<u32> {
    let functions = Vec::<String>::from_redis_value(module.remove("functions")?).ok()?;
    let numbers = Vec::<u32>::from_redis_value(module.remove("numbers")?).ok()?;
    let is_function = |text: &String| text.split([' ', '(']).nth(1) == Some(name);
    numbers.get(functions.iter().position(is_function)?).copied()
}
