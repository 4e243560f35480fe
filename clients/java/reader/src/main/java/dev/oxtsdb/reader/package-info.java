/** Reads points of OxTSDB over gRPC; {@link dev.oxtsdb.reader.Reader} is where to begin. */
package dev.oxtsdb.reader;
