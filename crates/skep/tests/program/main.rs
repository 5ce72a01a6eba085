//! The program from outside: child processes on free ports, what they print, and how they exit.

mod bench;
mod cli;
mod paper;
mod process;
mod serve;
mod sizing;
mod start;
mod stop;
