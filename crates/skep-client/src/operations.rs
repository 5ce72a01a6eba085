//! Single operations, the same for the blocking and the asynchronous client.

/// Defines the single operations for a client that has `execute_one` and `exchange`.
macro_rules! single_operations {
    ($client:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// Single operations: each is one round trip. For many operations, [`execute`](Self::execute) a batch.
        impl $client {
            /// Returns the value of a key, or `None` if the key does not exist.
            pub $($async)? fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Get })$($wait)*?;
                reply::value(self.exchange.single())
            }

            /// Returns true if a key exists.
            pub $($async)? fn contains(&mut self, key: &[u8]) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Contains })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Inserts or replaces the value of a key.
            pub $($async)? fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::Always };
                self.execute_one(&Request { key, operation })$($wait)*?;
                reply::done(self.exchange.single())
            }

            /// Inserts a key unless it exists. Returns true if it was inserted.
            pub $($async)? fn put_if_absent(&mut self, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::IfAbsent };
                self.execute_one(&Request { key, operation })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Replaces the value of a key if it exists. Returns true if it was replaced.
            pub $($async)? fn put_if_present(&mut self, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::IfPresent };
                self.execute_one(&Request { key, operation })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Removes a key. Returns true if it existed.
            pub $($async)? fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Delete })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Updates the value of a key. Returns the old value if the update requests it, else an empty value.
            /// Returns `None` if the key does not exist and the update has no initial value.
            pub $($async)? fn update(
                &mut self,
                key: &[u8],
                update: Update<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Update(update) })$($wait)*?;
                reply::old_value(self.exchange.single())
            }

            /// Folds the vector of a key to one element. Returns `None` if the key does not exist.
            pub $($async)? fn reduce(
                &mut self,
                key: &[u8],
                reduce: Reduce<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Reduce(reduce) })$($wait)*?;
                reply::value(self.exchange.single())
            }

            /// Returns the elements of a key's vector that pass, or `None` if the key does not exist.
            pub $($async)? fn filter(
                &mut self,
                key: &[u8],
                filter: Filter<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Filter(filter) })$($wait)*?;
                reply::value(self.exchange.single())
            }

            /// Adds to a number in decimal text, as RESP's `INCRBY` does, and returns the sum. A missing key counts as
            /// 0.
            pub $($async)? fn add_decimal(&mut self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
                self.execute_one(&Request { key, operation: Operation::AddDecimal { delta } })$($wait)*?;
                reply::decimal(self.exchange.single())
            }
        }
    };
}

pub(crate) use single_operations;
