//! The stores of Skep, without input or output.
pub mod function;
pub mod naive;
pub mod operation;
pub mod processor;
