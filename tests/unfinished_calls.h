// Calls of which each sends all but the end of a message, as many as a connection may have: what
// they have sent stays in the server's memory.
#ifndef RUBATO_TESTS_UNFINISHED_CALLS_H_
#define RUBATO_TESTS_UNFINISHED_CALLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rubato {

class UnfinishedCalls {
 public:
  // Connects to `address`, as `connections` clients that speak just enough HTTP/2. Before a client
  // `acknowledges` the server's settings, they do not bind it.
  UnfinishedCalls(const std::string& address, int connections, bool acknowledges = true);
  ~UnfinishedCalls();

  // Calls `method` `calls` times on each connection and sends what the server takes, until it has
  // broken all connections. Returns the bytes that it took.
  int64_t Send(const std::string& method, uint32_t calls);

 private:
  struct Connection {
    int fd = -1;
    int64_t window = 65535;
    std::map<uint32_t, int64_t> windows, left;  // by call
    std::string out, in;
  };

  void Fill(Connection* connection);
  // False if the connection is gone.
  bool Exchange(Connection* connection, short events);
  void Read(Connection* connection) const;

  const bool acknowledges_;
  std::vector<Connection> connections_;
  int64_t taken_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_UNFINISHED_CALLS_H_
