package certs

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// clockTolerance is how far the clock of this machine may be from that of the API server: a small
// part of skew, and more than a slow answer and a clock that is set in steps make.
const clockTolerance = 10 * time.Minute

// A clock tells the date for certificates and path tokens. It is that of the API server where this
// machine's differs from it by more than clockTolerance: API servers verify the certificates, and all
// replicas share them. One replica whose clock jumps by a year would otherwise replace certificates
// that are valid by ones that are not valid yet, and another replica would replace those again.
//
// Durations are not measured with it, but with time.Now, which has a monotonic clock.
type clock struct {
	machine func() time.Time // the clock of this machine
	log     *slog.Logger
	heard   atomic.Pointer[heardDate] // nil while the clock of this machine is right
}

// A heardDate is a date of an API server, and when it was heard.
type heardDate struct{ date, at time.Time }

// now returns the date.
func (c *clock) now() time.Time {
	if h := c.heard.Load(); h != nil {
		return h.date.Add(time.Since(h.at))
	}
	return c.machine()
}

// hear compares the clock of this machine with the date of an answer.
func (c *clock) hear(date time.Time) {
	switch ahead := c.machine().Sub(date); {
	case ahead.Abs() <= clockTolerance:
		if c.heard.Swap(nil) != nil {
			c.log.Info("the clock of this machine is right again")
		}
	case c.heard.Swap(&heardDate{date, time.Now()}) == nil:
		c.log.Warn("the clock of this machine differs from that of the API server; certificates and path tokens follow that of the API server",
			"ahead", ahead.Round(time.Second).String())
	}
}

// listenTo hears the dates of all answers to requests with this configuration. Those of errors of a
// server may come from a proxy.
func (c *clock) listenTo(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &datedTransport{next, c} })
}

type datedTransport struct {
	http.RoundTripper
	clock *clock
}

// RoundTrip implements http.RoundTripper.
func (t *datedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode < http.StatusInternalServerError {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			t.clock.hear(date)
		}
	}
	return response, err
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (t *datedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
