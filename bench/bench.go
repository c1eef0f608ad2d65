// Package bench sends admission reviews to a webhook the way kube-apiserver
// does, measures how long the answers take and what they cost the server, and
// checks each answer.
//
// One wants it to compare webhooks, to size one, and to see in a pipeline that
// it did not become slower. A run is an open loop (requests are due by a
// schedule, and latency counts from the moment a request was due, whether or
// not it could be sent then) or a closed loop (each connection sends the next
// request when it has the answer).
//
// How connections are opened, kept and written to is that of
// k8s.io/apiserver/pkg/util/webhook and k8s.io/client-go/rest.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Arrivals is how the requests of an open loop follow each other.
type Arrivals string

// The kinds of arrivals.
const (
	// Constant has the same time between any two requests.
	Constant Arrivals = "constant"
	// Poisson has independent requests: times between them are exponential.
	Poisson Arrivals = "poisson"
)

// Model is how a client deals with its connections.
type Model string

// The connection models.
const (
	// APIServer is kube-apiserver: any number of connections in flight, at most
	// 25 kept when idle, headers in a TLS record of their own, and another try
	// when an overloaded server answers with Retry-After.
	APIServer Model = "apiserver"
	// KeepAlive keeps all connections and sends a request in one write.
	KeepAlive Model = "keepalive"
	// OneShot opens a connection for each request.
	OneShot Model = "oneshot"
)

// Limits and defaults of a load.
const (
	// The requests in flight of an open loop are bounded, for each holds a
	// goroutine, a connection and a body. kube-apiserver has no bound; other
	// clients have pools, so that a short stop does not end in as many TLS
	// handshakes as there were requests in it.
	inFlightAPIServer = 1000
	inFlightOthers    = 64

	// timeoutMax is the most that timeoutSeconds of a webhook can be, and the
	// default of a load that does not say is kube-apiserver's, 10 s.
	timeoutMax     = 30 * time.Second
	timeoutDefault = 10 * time.Second

	// patchSampleDefault is one in how many patches is applied.
	patchSampleDefault = 100
)

// Load is what is sent and when.
type Load struct {
	// Rate is requests per second in an open loop. With 0 the loop is closed.
	Rate float64
	// Arrivals is how requests of an open loop follow each other; Constant if
	// empty.
	Arrivals Arrivals
	// Burst is how many requests of an open loop are due at once; 1 if zero.
	// The rate stays what it is.
	Burst int
	// InFlight is how many requests a closed loop has in flight at all times (1
	// if zero), and the most an open loop may have (if zero, 1000 for the model
	// APIServer and 64 for others).
	InFlight int

	// WarmUp is for how long the load runs before what counts.
	WarmUp time.Duration
	// Duration and Count bound the load that counts. At least one is needed;
	// with both, what comes first ends it.
	Duration time.Duration
	Count    int64
}

func (l *Load) closed() bool { return l.Rate == 0 }

// String describes the load in a few words.
func (l *Load) String() string {
	if l.closed() {
		return fmt.Sprintf("closed loop, %d in flight", l.InFlight)
	}
	text := fmt.Sprintf("open loop, %g requests/s, %s arrivals", l.Rate, l.Arrivals)
	if l.Burst > 1 {
		text += fmt.Sprintf(" of %d at once", l.Burst)
	}
	return text
}

// complete fills in defaults and returns what is wrong.
func (l *Load) complete(model Model) error {
	if l.Arrivals == "" {
		l.Arrivals = Constant
	}
	if l.Burst == 0 {
		l.Burst = 1
	}
	if l.InFlight == 0 {
		switch {
		case l.closed():
			l.InFlight = 1
		case model == APIServer:
			l.InFlight = inFlightAPIServer
		default:
			l.InFlight = inFlightOthers
		}
	}
	switch {
	case l.Rate < 0 || l.Rate > 1e7:
		return fmt.Errorf("got a rate of %g requests/s, want 0 (closed loop) to 10000000", l.Rate)
	case l.Arrivals != Constant && l.Arrivals != Poisson:
		return fmt.Errorf("got arrivals %q, want %q or %q", l.Arrivals, Constant, Poisson)
	case l.Burst < 1 || l.Burst > l.InFlight && !l.closed():
		return fmt.Errorf("got bursts of %d requests, want 1 to what may be in flight, %d", l.Burst, l.InFlight)
	case l.InFlight < 1:
		return fmt.Errorf("got %d requests in flight, want 1 or more", l.InFlight)
	case l.WarmUp < 0 || l.Duration < 0 || l.Count < 0:
		return errors.New("got a negative duration or count")
	case l.Duration == 0 && l.Count == 0:
		return errors.New("got no duration and no count, want one of them")
	}
	return nil
}

// Config is a run: a load on a target.
type Config struct {
	Target Target
	Model  Model // APIServer if empty
	Load   Load
	Mix    *Mix // what is sent

	// Timeout is how long an answer may take, at most 30 s; 10 s if zero.
	Timeout time.Duration
	// Expect is what the answers must decide; Same if empty. What a recording
	// itself expects goes first.
	Expect Expect
	// PatchSample is one in how many patches is applied to the object; 100 if
	// zero. The first patch of each recording always is.
	PatchSample int
	// Seed makes the random parts repeatable: arrivals, uids and names.
	Seed uint64

	// PprofDir is where the profiles go that the target's PprofURL gives. None
	// are taken if it is empty.
	PprofDir string
	// Progress, if set, is called about once a second.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Target   string
	WarmUp   bool
	Elapsed  time.Duration // since the warm-up, or what counts, began
	Requests int64
	Failed   int64
	Rate     float64 // answers per second since the last call
	P99      time.Duration
}

// complete fills in defaults and returns what is wrong.
func (c *Config) complete() error {
	if c.Model == "" {
		c.Model = APIServer
	}
	if c.Timeout == 0 {
		c.Timeout = timeoutDefault
	}
	if c.Expect == "" {
		c.Expect = Same
	}
	if c.PatchSample == 0 {
		c.PatchSample = patchSampleDefault
	}
	switch {
	case c.Model != APIServer && c.Model != KeepAlive && c.Model != OneShot:
		return fmt.Errorf("got connection model %q, want %q, %q or %q", c.Model, APIServer, KeepAlive, OneShot)
	case c.Timeout < 0 || c.Timeout > timeoutMax:
		return fmt.Errorf("got a timeout of %s, want up to %s as in webhook configurations", c.Timeout, timeoutMax)
	case c.Mix == nil:
		return errors.New("got nothing to send")
	case c.PatchSample < 0:
		return fmt.Errorf("got %d for one in how many patches to apply, want 1 or more", c.PatchSample)
	}
	if err := c.Expect.check(); err != nil {
		return err
	}
	if err := c.Load.complete(c.Model); err != nil {
		return err
	}
	return c.Target.complete()
}

// Run puts the load on the target and returns what was measured. When ctx ends
// early, that is what was measured until then. The error is for runs that
// cannot begin; wrong answers are in the result.
func Run(ctx context.Context, config Config) (*Result, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	r, err := newRunner(&config)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer r.pool.close()
	return r.run(ctx)
}

// Check returns what is wrong with the config.
func (c Config) Check() error {
	if err := c.complete(); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
