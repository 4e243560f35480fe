/** A sink connector for Kafka Connect, which writes records of topics as points. */
package dev.oxtsdb.kafka;
