//! For tests: handlers of this crate over the parts of a stack, which is linked with another instance of the crate.

use std::sync::Arc;

use oxtsdb_test_stack::TestStack;

use crate::grpc::{DataServiceHandler, SeriesMetaHandler};

/// A handler of its own, with the settings of the stack.
pub(crate) fn data_handler(stack: &TestStack) -> DataServiceHandler {
    let (service, settings) = (&stack.service, Arc::new(stack.settings.clone()));
    DataServiceHandler::new(
        service.writer.clone(),
        service.engine.clone(),
        settings,
        stack.shutdown.clone(),
    )
}

/// As [`data_handler`], of metadata of series.
pub(crate) fn series_meta_handler(stack: &TestStack) -> SeriesMetaHandler {
    let service = &stack.service;
    SeriesMetaHandler::new(
        service.engine.clone(),
        &service.writer,
        service.uids.clone(),
        service.text_search.clone(),
    )
}
