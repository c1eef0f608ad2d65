// Package bench sends admission reviews to a webhook as kube-apiserver does. It
// measures the latency of the answers and the resources that the server uses, and
// checks each answer.
//
// Use it to compare webhooks, to find out how much load a webhook can take, and to
// detect in a pipeline that a webhook became slower.
//
// A run is an open loop or a closed loop. In an open loop, requests are due at
// scheduled times, and latency is measured from that time even if a request is sent
// late. In a closed loop, a fixed number of requests is in flight; the next request
// is sent when an answer arrives.
//
// Connections are opened, reused and written to as in k8s.io/apiserver
// pkg/util/webhook and k8s.io/client-go/rest.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Arrivals determines the times between the requests of an open loop.
type Arrivals string

// The kinds of arrivals.
const (
	// Constant means equal times between requests.
	Constant Arrivals = "constant"
	// Poisson means exponentially distributed times, as with independent users.
	Poisson Arrivals = "poisson"
)

// Model determines how a client uses connections.
type Model string

// The connection models.
const (
	// APIServer works as kube-apiserver does. It opens as many connections as it
	// needs, keeps at most 25 idle ones, and sends headers and body in separate TLS
	// records. It repeats a request if the server answers with a Retry-After header
	// and code 429 or 500 and above.
	APIServer Model = "apiserver"
	// KeepAlive keeps all connections and sends a request in one write.
	KeepAlive Model = "keepalive"
	// OneShot opens a connection for each request.
	OneShot Model = "oneshot"
)

// Limits and defaults of a load.
const (
	// An open loop bounds its requests in flight, because each holds a goroutine, a connection and
	// a body. kube-apiserver has no bound. The other models stand for clients with a pool: when the
	// server stops for a moment, they do not open a connection for each request that waits.
	inFlightAPIServer = 1000
	inFlightOthers    = 64

	// timeoutMax is the maximum of a webhook's timeoutSeconds. timeoutDefault is kube-apiserver's
	// default.
	timeoutMax     = 30 * time.Second
	timeoutDefault = 10 * time.Second

	// patchSampleDefault means that one patch in 100 is applied.
	patchSampleDefault = 100
)

// Load determines how many requests are sent, and when.
type Load struct {
	// Rate is the number of requests per second in an open loop. With 0, the loop is
	// closed.
	Rate float64
	// Arrivals determines the times between the requests of an open loop. The
	// default is Constant.
	Arrivals Arrivals
	// Burst is the number of requests of an open loop that are due at the same time.
	// The default is 1. It does not change the rate.
	Burst int
	// InFlight is the number of requests in flight: constant in a closed loop, with
	// the default 1, and the maximum in an open loop, with the default 1000 for the
	// model APIServer and 64 for other models.
	InFlight int

	// WarmUp is how long the load runs before the measurement begins.
	WarmUp time.Duration
	// Duration and Count limit the measurement. At least one is required. With both,
	// the limit that is reached first ends the measurement.
	Duration time.Duration
	Count    int64 // requests
}

func (l *Load) closed() bool { return l.Rate == 0 }

// String returns a short description of the load for reports.
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

// Config configures a run.
type Config struct {
	Target Target
	Model  Model // APIServer if empty
	Load   Load
	Mix    *Mix // the reviews to send

	// Timeout is how long an answer may take, at most 30 s. The default is 10 s.
	Timeout time.Duration
	// Expect is the decision that the answers must have. The default is Same. The
	// Expect of a recording overrides it.
	Expect Expect
	// PatchSample is n if every nth patch is applied to the object, to check it. The
	// default is 100. The first patch of each recording is always applied.
	PatchSample int
	// Seed is the seed of random values: arrivals, uids and names.
	Seed uint64

	// PprofDir is the directory for profiles of the server: cpu.pprof, heap.pprof and
	// allocs.pprof. It is created if necessary, and needs the target's PprofURL. If it
	// is empty, no profiles are taken.
	PprofDir string
	// Progress, if set, is called about once a second.
	Progress func(Progress)
}

// Progress describes the state of a run.
type Progress struct {
	Target   string        // name
	WarmUp   bool          // the measurement has not begun
	Elapsed  time.Duration // since the warm-up or the measurement began
	Requests int64         // sent since then, failed ones included
	Failed   int64
	Rate     float64       // completed requests per second since the last call, failed ones included
	P99      time.Duration // of the latency
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

// Run runs the load against the target and returns the measurement. If ctx ends
// early, the result contains the measurement up to then. Run returns an error if the
// configuration is invalid or the target cannot be reached at the beginning. Failed
// requests are not an error; the result counts them.
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

// Check returns an error if Run would reject the configuration. It does not connect to
// the target.
func (c Config) Check() error {
	if err := c.complete(); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
