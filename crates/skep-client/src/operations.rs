//! Single operations, the same for the blocking and the asynchronous client.

/// The operations one by one, for a client that has `execute_one` and `exchange`.
macro_rules! single_operations {
    ($client:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// Single operations: a round trip each. For many, [`execute`](Self::execute) a batch.
        impl $client {
            /// The value of a key, or `None` if the key does not exist.
            pub $($async)? fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Get })$($wait)*?;
                answer::value(self.exchange.single())
            }

            /// Whether a key exists.
            pub $($async)? fn contains(&mut self, key: &[u8]) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Contains })$($wait)*?;
                answer::whether_done(self.exchange.single())
            }

            /// Inserts or replaces the value of a key.
            pub $($async)? fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::Always };
                self.execute_one(&Request { key, operation })$($wait)*?;
                answer::done(self.exchange.single())
            }

            /// Inserts a key unless it exists. Answers whether it did.
            pub $($async)? fn put_if_absent(&mut self, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::IfAbsent };
                self.execute_one(&Request { key, operation })$($wait)*?;
                answer::whether_done(self.exchange.single())
            }

            /// Replaces the value of a key if it exists. Answers whether it did.
            pub $($async)? fn put_if_present(&mut self, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
                let operation = Operation::Put { value, condition: PutCondition::IfPresent };
                self.execute_one(&Request { key, operation })$($wait)*?;
                answer::whether_done(self.exchange.single())
            }

            /// Removes a key. Answers whether it existed.
            pub $($async)? fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Delete })$($wait)*?;
                answer::whether_done(self.exchange.single())
            }

            /// Updates the value of a key. Answers the old value if the update asks for it, else no bytes; `None`
            /// if the key does not exist and the update has no initial value.
            pub $($async)? fn update(
                &mut self,
                key: &[u8],
                update: Update<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Update(update) })$($wait)*?;
                answer::old_value(self.exchange.single())
            }

            /// Folds the vector of a key to one element, or `None` if the key does not exist.
            pub $($async)? fn reduce(
                &mut self,
                key: &[u8],
                reduce: Reduce<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Reduce(reduce) })$($wait)*?;
                answer::value(self.exchange.single())
            }

            /// The elements of a key's vector that pass, or `None` if the key does not exist.
            pub $($async)? fn filter(
                &mut self,
                key: &[u8],
                filter: Filter<'_>,
            ) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Filter(filter) })$($wait)*?;
                answer::value(self.exchange.single())
            }

            /// Adds to a number in decimal text, as RESP's `INCRBY` does; a missing key counts as 0. Answers the
            /// sum.
            pub $($async)? fn add_decimal(&mut self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
                self.execute_one(&Request { key, operation: Operation::AddDecimal { delta } })$($wait)*?;
                answer::decimal(self.exchange.single())
            }
        }
    };
}

pub(crate) use single_operations;
