//! Scans of an ordered space, the same for the blocking and the asynchronous client.

/// The scans, and the pages of one, for a client that has `execute_one` and `exchange`.
macro_rules! scans {
    ($client:ident, $pages:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// The pages of a scan, which all show the space at one moment. One that is dropped before its end leaves a
        /// lease, which expires by itself.
        #[derive(Debug)]
        pub struct $pages<'c, 'k> {
            client: &'c mut $client,
            progress: ScanProgress<'k>,
        }

        impl $pages<'_, '_> {
            /// The next pairs of the range, at least one; `None` when all were shown. After an error there are no more,
            /// unless it says that the server is busy: then the page can be asked for again.
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
                    if let Some(page) = self.progress.answered(self.client.exchange.single())?
                        && page.count() > 0
                    {
                        return Ok(Some(take(&page)));
                    }
                }
                Ok(None)
            }
        }

        /// Scans, of a space whose keys have an order.
        impl $client {
            /// The pairs of a range in their order, all as of one moment.
            pub $($async)? fn scan(&mut self, range: KeyRange<'_>) -> Result<Vec<Pair>, ClientError> {
                let mut found = Vec::new();
                let mut pages = self.pages(range);
                while let Some(page) = pages.next_with(range::pairs)$($wait)*? {
                    found.extend(page);
                }
                Ok(found)
            }

            /// The keys of a range in their order, all as of one moment.
            pub $($async)? fn scan_keys(&mut self, range: KeyRange<'_>) -> Result<Vec<Vec<u8>>, ClientError> {
                let mut found = Vec::new();
                let mut pages = self.key_pages(range);
                while let Some(page) = pages.next_with(range::keys)$($wait)*? {
                    found.extend(page);
                }
                Ok(found)
            }

            /// How many pairs a range has at one moment.
            pub $($async)? fn count(&mut self, range: KeyRange<'_>) -> Result<u64, ClientError> {
                let mut count = 0;
                let mut pages = $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Count) };
                while let Some(page_count) = pages.next_with(range::count)$($wait)*? {
                    count += page_count;
                }
                Ok(count)
            }

            /// The pairs of a range, page by page: a range may be larger than memory.
            pub fn pages<'c, 'k>(&'c mut self, range: KeyRange<'k>) -> $pages<'c, 'k> {
                $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Pairs) }
            }

            /// The keys of a range, page by page; the values are left out and empty.
            pub fn key_pages<'c, 'k>(&'c mut self, range: KeyRange<'k>) -> $pages<'c, 'k> {
                $pages { client: self, progress: ScanProgress::new(range, ScanAnswer::Keys) }
            }
        }
    };
}

pub(crate) use scans;
