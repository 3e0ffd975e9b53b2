// Package distributed tests what happens to conversations when the machines that run them die: it starts Postgres, a
// Temporal server and workers, each in separate processes, sends inputs, kills workers, restarts the servers and cuts
// the network, and then counts in the database what was lost or done twice.
//
//	make distributed                          # in the root of the repository; some minutes
//	go test -v                                # fewer runs, and no wrong clock
//	go test -run '^$' -bench . -args -runs 500 # runs a second, without faults
package distributed
