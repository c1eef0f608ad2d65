package app

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// load is what a server has in hand: requests from their first byte to the
// first one of the answer, and the bytes that were read of them.
type load struct {
	requests, bytes       atomic.Int64
	requestsMax, bytesMax int64
}

const (
	// requestsInFlightMax is how many requests may be in flight by default. A
	// processor answers some 50,000 a second, so these wait for 20 ms at most
	// where nothing is looked up in the cluster.
	requestsInFlightMax = 1000

	// bytesInFlightMax is how many bytes of requests may be in flight by
	// default: eight of the largest, and a thousand Pods of 250 KB.
	bytesInFlightMax = 8 * bodyBytesMax

	// cheapBytes is how large a body may be to be read although the answer is
	// known: less than closing the connection costs, which makes kube-apiserver
	// begin with a new handshake.
	cheapBytes = 64 << 10

	// retryAfter is after how many seconds kube-apiserver tries again by itself,
	// up to ten times within its timeout (k8s.io/client-go rest/request.go).
	retryAfter = "1"

	// memoryShare is the part of the container's memory that the Go heap and
	// stacks may take before the collector works harder.
	memoryShare = 0.9
)

// full reports whether there are more requests or bytes in flight than may be,
// with so many bytes more to come. What the read buffer has of a body already
// is counted twice.
func (l *load) full(coming int) bool {
	return l.requests.Load() > l.requestsMax || l.bytes.Load()+int64(coming) > l.bytesMax
}

// limitBody is called when a request's header was read. It keeps the body of a
// request that is going to be refused from being read, by making it too large.
func (s *server) limitBody(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	coming := header.ContentLength()
	if coming < 0 {
		coming = bodyBytesMax // chunked, which kube-apiserver never sends
	}
	if coming > cheapBytes && s.load.full(coming) || !s.callers.knows(header) {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1}
	}
	return fasthttp.RequestConfig{}
}

// limitMemory tells the Go runtime how much memory its container has, unless
// GOMEMLIMIT does.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := containerMemory(os.ReadFile); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// containerMemory returns the memory that may be used of what the control group
// of the process has (Linux Documentation/admin-guide/cgroup-v2.rst, and v1),
// 0 if that has no limit.
func containerMemory(readFile func(string) ([]byte, error)) int64 {
	for _, file := range [...]string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		content, err := readFile(file)
		if err != nil {
			continue
		}
		bytes, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		if err != nil || bytes <= 0 || bytes >= math.MaxInt64/2 { // "max", and what v1 has for it
			return 0
		}
		return int64(float64(bytes) * memoryShare)
	}
	return 0
}

// overloaded refuses a request that there is no room for.
func (s *server) overloaded(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retryAfter)
	s.refuse(ctx, fasthttp.StatusTooManyRequests, "TooManyRequests",
		fmt.Sprintf("got %d requests and %d bytes of them in flight, want at most %d and %d",
			s.load.requests.Load(), s.load.bytes.Load(), s.load.requestsMax, s.load.bytesMax))
}
