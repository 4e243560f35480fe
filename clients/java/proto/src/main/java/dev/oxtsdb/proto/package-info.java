/** Details of errors. The messages and stubs of the contract are in the packages below. */
package dev.oxtsdb.proto;
