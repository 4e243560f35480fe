/** A sink of Apache Flink that writes points to OxTSDB; {@link dev.oxtsdb.flink.OxtsdbSink} is where to begin. */
package dev.oxtsdb.flink;
