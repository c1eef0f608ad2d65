package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
)

const (
	// held is how many connections an unauthenticated caller holds. It is more than 1024, the
	// default limit of files in a container.
	held = 1200

	// heldFor is for how long it holds them.
	heldFor = 20 * time.Second

	// largeEvery is the time between two bursts of large reviews, and largeAtOnce
	// how many there are in each.
	largeEvery  = 15 * time.Second
	largeAtOnce = 4

	// handshakeEvery is the time between two attacks that cost a TLS handshake.
	handshakeEvery = 100 * time.Millisecond

	// patience is how long an attacker waits for an answer.
	patience = 35 * time.Second
)

// attacks run at the same time as the good load.
type attacks struct {
	server *server
	all    []*attackKind
	group  sync.WaitGroup
}

// An attackKind is one way to hurt the server.
type attackKind struct {
	name  string
	from  string        // source address
	pause time.Duration // between two attacks of this kind
	// once attacks once. It returns the HTTP status of the answer, 0 without one.
	once func(ctx context.Context, from string, random *rand.Rand) int

	answers [6]atomic.Int64 // counts by class of the status: 2xx, 4xx
}

// attack starts the attacks whose names match. They continue until ctx ends.
func attack(ctx context.Context, s *server, through *clusterAttacks, only *regexp.Regexp) *attacks {
	a := &attacks{server: s}
	a.all = []*attackKind{
		{name: "connections held without a handshake", from: "127.0.0.2", once: a.hold},
		{name: "handshakes cut", from: "127.0.0.3", pause: handshakeEvery, once: a.cutHandshake},
		{name: "reviews without a token", from: "127.0.0.4", pause: handshakeEvery, once: a.stranger},
		{name: "32 MiB declared, a byte at a time, no token", from: "127.0.0.5", pause: handshakeEvery, once: a.slowly("", 0)},
		{name: "32 MiB declared, a byte at a time", from: "127.0.0.6", pause: handshakeEvery, once: a.slowly(token, 0)},
		{name: "endless chunk extensions, no token", from: "127.0.0.7", pause: handshakeEvery, once: a.slowly("", -1)},
		{name: "endless chunk extensions", from: "127.0.0.8", pause: handshakeEvery, once: a.slowly(token, -1)},
		{name: "bodies cut, with a reset", from: "127.0.0.9", pause: handshakeEvery, once: a.cutBody},
		{name: "answers not read", from: "127.0.0.10", pause: handshakeEvery, once: a.leave},
		{name: "reviews with bytes altered", from: "127.0.0.11", pause: handshakeEvery, once: a.altered},
		{name: "names of 1 MB", from: "127.0.0.12", pause: time.Second, once: a.longName},
		{name: "large headers held without a body", from: "127.0.0.14", pause: time.Second, once: a.waitWithHeader},
		{name: "long answers held unread", from: "127.0.0.15", pause: time.Second, once: a.unread},
		{name: "four Pods of 15 MB at once", from: "127.0.0.13", pause: largeEvery, once: a.large},
		{name: "expressions that make gigabytes", from: "127.0.0.14", pause: largeEvery / 3, once: a.expressionMemory},
		{name: "expressions that take seconds", from: "127.0.0.15", pause: largeEvery, once: a.expressionTime},
		{name: "webhook answers that are large, late or failures", from: "127.0.0.16", pause: time.Second, once: a.hooked},
		{name: "image policy answers that are large, late or failures", from: "127.0.0.17", pause: time.Second, once: a.images},
		{name: "metrics asked for 64 times at once", from: "127.0.0.18", pause: handshakeEvery, once: a.scrape},
		{name: "410 to every watch", pause: expiredEvery, once: through.expire},
		{name: "events of 300 MB", pause: eventEvery, once: through.largeEvent},
	}
	a.all = slices.DeleteFunc(a.all, func(kind *attackKind) bool { return !only.MatchString(kind.name) })
	for i, kind := range a.all {
		a.group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				status := kind.once(ctx, kind.from, random)
				kind.answers[min(5, status/100)].Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(kind.pause):
				}
			}
		})
	}
	return a
}

func (a *attacks) wait() { a.group.Wait() }

// print prints the counts of answers.
func (a *attacks) print() {
	for _, kind := range a.all {
		var parts []string
		for i := range kind.answers {
			if n := kind.answers[i].Load(); n > 0 {
				what := fmt.Sprintf("%dxx", i)
				if i == 0 {
					what = "no answer"
				}
				parts = append(parts, fmt.Sprintf("%s %d", what, n))
			}
		}
		fmt.Printf("attack: %s: %s\n", kind.name, strings.Join(parts, ", "))
	}
}

// dial opens a TCP connection from an address of the loopback network.
func (a *attacks) dial(ctx context.Context, from string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	return dialer.DialContext(ctx, "tcp", a.server.address)
}

func (a *attacks) dialTLS(ctx context.Context, from string) (*tls.Conn, error) {
	raw, err := a.dial(ctx, from)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(raw, a.server.target.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// post sends a review to either endpoint and returns the status of the answer.
func (a *attacks) post(ctx context.Context, from, token string, body []byte) int {
	return a.postTo(ctx, from, endpoint(), token, body)
}

// postTo sends a review to an endpoint and returns the status of the answer.
func (a *attacks) postTo(ctx context.Context, from, endpoint, token string, body []byte) int {
	transport := &http.Transport{
		TLSClientConfig: a.server.target.TLS, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dial(ctx, from) },
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server.target.URL+endpoint+"?timeout=10s", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return statusOf(transport, request)
}

// statusOf sends a request, reads its answer and returns the HTTP status, 0 without an answer.
func statusOf(transport *http.Transport, request *http.Request) int {
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

// endpoint is the path of either endpoint.
func endpoint() string {
	if rand.IntN(2) == 0 { //nolint:gosec // no secret
		return "/mutate"
	}
	return "/validate"
}

func (a *attacks) hold(ctx context.Context, from string, _ *rand.Rand) int {
	var conns []net.Conn
	for range held {
		if conn, err := a.dial(ctx, from); err == nil {
			conns = append(conns, conn)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(heldFor):
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	return 0
}

func (a *attacks) cutHandshake(ctx context.Context, from string, random *rand.Rand) int {
	conn, err := a.dial(ctx, from)
	if err != nil {
		return 0
	}
	hello := []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3} // the first bytes of a ClientHello
	_, _ = conn.Write(hello[:random.IntN(len(hello)+1)])
	_ = conn.Close()
	return 0
}

func (a *attacks) stranger(ctx context.Context, from string, random *rand.Rand) int {
	return a.post(ctx, from, "", recording(random))
}

// recording returns a random recording.
func recording(random *rand.Rand) []byte {
	names := corpus.Names()
	return corpus.MustRead(names[random.IntN(len(names))])
}

// head returns the header block of a request. A negative length means chunked encoding.
func head(token string, length int) string {
	var b strings.Builder
	b.WriteString("POST /mutate?timeout=10s HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n")
	if token != "" {
		b.WriteString("Authorization: Bearer " + token + "\r\n")
	}
	if length < 0 {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n1;")
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", length)
	}
	return b.String()
}

// slowly sends a request that does not end until the server closes the connection: a body byte by
// byte, or with chunked -1 a chunk extension at full speed.
func (a *attacks) slowly(token string, chunked int) func(context.Context, string, *rand.Rand) int {
	return func(ctx context.Context, from string, _ *rand.Rand) int {
		conn, err := a.dialTLS(ctx, from)
		if err != nil {
			return 0
		}
		defer conn.Close()
		length, piece, pause := 32<<20, []byte(" "), 100*time.Millisecond
		if chunked < 0 {
			length, piece, pause = -1, bytes.Repeat([]byte("x"), 16<<10), 5*time.Millisecond
		}
		if _, err := conn.Write([]byte(head(token, length))); err != nil {
			return 0
		}
		answered := make(chan int, 1)
		go func() {
			buffer := make([]byte, 16)
			n, _ := io.ReadFull(conn, buffer)
			status := 0
			_, _ = fmt.Sscanf(string(buffer[:n]), "HTTP/1.1 %d", &status)
			answered <- status
		}()
		for ctx.Err() == nil {
			if _, err := conn.Write(piece); err != nil {
				break
			}
			select {
			case status := <-answered:
				return status
			case <-time.After(pause):
			}
		}
		_ = conn.SetReadDeadline(time.Now())
		return <-answered
	}
}

func (a *attacks) cutBody(ctx context.Context, from string, random *rand.Rand) int {
	raw, err := a.dial(ctx, from)
	if err != nil {
		return 0
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(raw, a.server.target.TLS)
	body := recording(random)
	_, _ = conn.Write([]byte(head(token, len(body))))
	_, _ = conn.Write(body[:random.IntN(len(body))])
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // so that Close sends a reset
	}
	return 0
}

func (a *attacks) leave(ctx context.Context, from string, random *rand.Rand) int {
	conn, err := a.dialTLS(ctx, from)
	if err != nil {
		return 0
	}
	body := recording(random)
	_, _ = conn.Write([]byte(head(token, len(body))))
	_, _ = conn.Write(body)
	_ = conn.Close()
	return 0
}

func (a *attacks) altered(ctx context.Context, from string, random *rand.Rand) int {
	body := bytes.Clone(recording(random))
	for range 1 + random.IntN(8) {
		body[random.IntN(len(body))] = byte(random.Uint32())
	}
	return a.post(ctx, from, token, body[:len(body)-random.IntN(2)*random.IntN(len(body))])
}

// tenantsPod is a review of a Pod in the namespace of an attacker. The good load is of others: the server
// shares memory and processors among callers, and a caller is a user in a namespace.
func tenantsPod() []byte {
	return bytes.ReplaceAll(corpus.MustRead("pods-create-v1-1.json"), []byte(`"namespace":"shop"`), []byte(`"namespace":"mallory"`))
}

func (a *attacks) longName(ctx context.Context, from string, _ *rand.Rand) int {
	review := corpus.MustRead("pods-create-v1-1.json")
	return a.post(ctx, from, token, bytes.Replace(review, []byte(`"namespace":"`), []byte(`"namespace":"`+strings.Repeat("n", 1<<20)), 1))
}

// large sends four reviews at once. Three are of Pods with many containers, one is of a Pod with
// many tolerations.
func (a *attacks) large(ctx context.Context, from string, _ *rand.Rand) int {
	const size = 15 << 20
	var group sync.WaitGroup
	worst := make([]int, largeAtOnce)
	for i := range worst {
		list, element := `"containers":[`, `{"name":"c","image":"i","resources":{}},`
		if i == 0 {
			list, element = `"tolerations":[`, `{"key":"k","operator":"Exists","effect":"NoSchedule"},`
		}
		body := bytes.Replace(tenantsPod(), []byte(list), []byte(list+strings.Repeat(element, size/len(element))), 1)
		group.Go(func() { worst[i] = a.post(ctx, from, token, body) })
	}
	group.Wait()
	status := worst[0]
	for _, s := range worst {
		if s == 0 || status != 0 && s > status {
			status = s
		}
	}
	return status
}
