/** Writes points to OxTSDB over gRPC; {@link dev.oxtsdb.writer.Writer} is where to begin. */
package dev.oxtsdb.writer;
