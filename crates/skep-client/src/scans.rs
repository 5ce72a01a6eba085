//! Scans of an ordered space, the same for the blocking and the asynchronous client.

/// Defines the scans and their pages for a client that has `execute_one` and `exchange`.
macro_rules! scans {
    ($client:ident, $pages:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// The pages of a scan, which all show the space at one moment. A scan that is dropped before its end leaves a
        /// lease, which expires.
        #[derive(Debug)]
        pub struct $pages<'c, 'k> {
            client: &'c mut $client,
            progress: ScanProgress<'k>,
        }

        impl $pages<'_, '_> {
            /// Returns the next pairs of the range, at least one, or `None` at the end of the range. After an error
            /// there are no more pages, unless the server is busy: then the page can be requested again.
            pub $($async)? fn next_page(&mut self) -> Option<Result<Vec<Pair>, ClientError>> {
                let page = self.next_with(range::pairs)$($wait)*;
                page.transpose()
            }

            $($async)? fn next_with<T>(&mut self, take: fn(&Page<'_>) -> T) -> Result<Option<T>, ClientError> {
                while let Some(request) = self.progress.request() {
                    if let Err(error) = self.client.execute_one(&request)$($wait)* {
                        self.progress.end();
                        return Err(error);
                    }
                    if let Some(page) = self.progress.receive(self.client.exchange.single())?
                        && page.count() > 0
                    {
                        return Ok(Some(take(&page)));
                    }
                }
                Ok(None)
            }
        }

        /// Scans of a space whose keys have an order.
        impl $client {
            /// Returns the pairs of a range in their order, all at one moment.
            pub $($async)? fn scan(&mut self, range: KeyRange<'_>) -> Result<Vec<Pair>, ClientError> {
                let mut found = Vec::new();
                let mut pages = self.pages(range);
                while let Some(page) = pages.next_with(range::pairs)$($wait)*? {
                    found.extend(page);
                }
                Ok(found)
            }

            /// Returns the keys of a range in their order, all at one moment.
            pub $($async)? fn scan_keys(&mut self, range: KeyRange<'_>) -> Result<Vec<Vec<u8>>, ClientError> {
                let mut found = Vec::new();
                let mut pages = self.key_pages(range);
                while let Some(page) = pages.next_with(range::keys)$($wait)*? {
                    found.extend(page);
                }
                Ok(found)
            }

            /// Returns the number of pairs of a range at one moment.
            pub $($async)? fn count(&mut self, range: KeyRange<'_>) -> Result<u64, ClientError> {
                let mut count = 0;
                let mut pages = $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Count) };
                while let Some(page_count) = pages.next_with(range::count)$($wait)*? {
                    count += page_count;
                }
                Ok(count)
            }

            /// Returns the pairs of a range page by page, for ranges that may be larger than memory.
            pub fn pages<'c, 'k>(&'c mut self, range: KeyRange<'k>) -> $pages<'c, 'k> {
                $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Pairs) }
            }

            /// Returns the keys of a range page by page. The values are empty.
            pub fn key_pages<'c, 'k>(&'c mut self, range: KeyRange<'k>) -> $pages<'c, 'k> {
                $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Keys) }
            }
        }
    };
}

pub(crate) use scans;
