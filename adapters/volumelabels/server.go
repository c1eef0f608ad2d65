package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

const (
	// nameMax is how many bytes the name of a disk, or its zone label, may have, as in
	// fastadmit's plugin.
	nameMax = 1024
	// cacheMax is how many answers the cache holds. With names of nameMax bytes, these take about
	// 10 MB.
	cacheMax = 4096
	// unknownAge is how long a disk is cached as unknown. It is shorter than it takes a user to
	// create the disk and try again.
	unknownAge = 5 * time.Second
	// tokenMax is how many bytes the file of the token may have.
	tokenMax = 64 << 10
)

// errUnknown says that there is no such disk.
var errUnknown = errors.New("the volume is not known")

// A disk is the subject of a request. zone is the zone label that the PersistentVolume already has,
// empty for none.
type disk struct{ provider, id, zone string }

// A cloud returns the labels of disks. It returns errUnknown if there is no such disk, and another
// error if it cannot tell now.
type cloud interface {
	labels(ctx context.Context, d disk) (map[string]string, error)
}

// A server serves the labels of the clouds' disks.
type server struct {
	clouds map[string]cloud // by provider
	limits limits
	access access

	inFlight *semaphore.Weighted
	calls    singleflight.Group
	cache    *lru.Cache[disk, answer]
}

type limits struct {
	inFlight int64         // requests at once
	timeout  time.Duration // of a cloud's requests for one disk
	age      time.Duration // how long an answer is cached
}

// An answer is a cached answer: the labels of a disk, or why there is no disk with that name.
type answer struct {
	labels  map[string]string
	unknown error
	until   time.Time
}

func newServer(clouds map[string]cloud, l limits, a access) (*server, error) {
	cache, err := lru.New[disk, answer](cacheMax)
	if err != nil {
		return nil, err
	}
	return &server{clouds: clouds, limits: l, access: a, inFlight: semaphore.NewWeighted(l.inFlight), cache: cache}, nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /labels", s.serve)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.WritePrometheus(w, true) })
	return mux
}

// serve answers GET /labels?provider=gce&id=disk-1&zone=europe-west4-a.
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d := disk{query.Get("provider"), query.Get("id"), query.Get("zone")}
	code, body := s.answer(r, d)
	provider := d.provider
	if s.clouds[provider] == nil {
		provider = "other"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(`volumelabels_requests_total{provider=%q,code="%d"}`, provider, code)).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		slog.Debug("cannot write an answer", "err", err)
	}
}

// answer returns the code and the body for a disk.
func (s *server) answer(r *http.Request, d disk) (code int, body []byte) {
	fail := func(code int, err error) (int, []byte) {
		return code, encode(map[string]string{"error": err.Error()})
	}
	if err := s.access.check(r); err != nil {
		return fail(http.StatusUnauthorized, err)
	}
	if !s.inFlight.TryAcquire(1) {
		return fail(http.StatusServiceUnavailable, fmt.Errorf("got more than %d requests at once", s.limits.inFlight))
	}
	defer s.inFlight.Release(1)
	labels, err := s.labels(d)
	switch {
	case errors.Is(err, errUnknown):
		return fail(http.StatusNotFound, err)
	case err != nil:
		slog.Error("cannot tell the labels of a disk", "provider", d.provider, "id", d.id, "zone", d.zone, "err", err)
		return fail(http.StatusBadGateway, fmt.Errorf("%s cannot be asked now: the log of volumelabels says why", d.provider))
	}
	return http.StatusOK, encode(map[string]any{"labels": labels})
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings alone
	}
	return append(body, '\n')
}

// labels returns the labels of a disk, from the cache if possible. Concurrent requests for the same
// disk share one call to the cloud, which continues when one of them is canceled.
func (s *server) labels(d disk) (map[string]string, error) {
	c := s.clouds[d.provider]
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: got provider %q, want one of --providers", errUnknown, d.provider)
	case d.id == "" || len(d.id) > nameMax || len(d.zone) > nameMax:
		return nil, errUnknown
	}
	if a, ok := s.cache.Get(d); ok && time.Now().Before(a.until) {
		metrics.GetOrCreateCounter("volumelabels_cache_hits_total").Inc()
		return a.labels, a.unknown
	}
	labels, err, _ := s.calls.Do(d.provider+"\x00"+d.id+"\x00"+d.zone, func() (any, error) { return s.ask(c, d) })
	if err != nil {
		return nil, err
	}
	return labels.(map[string]string), nil
}

func (s *server) ask(c cloud, d disk) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.timeout)
	defer cancel()
	start := time.Now()
	labels, err := c.labels(ctx, d)
	metrics.GetOrCreateHistogram(fmt.Sprintf(`volumelabels_cloud_duration_seconds{provider=%q}`, d.provider)).UpdateDuration(start)
	switch {
	case err == nil:
		s.cache.Add(d, answer{labels: labels, until: time.Now().Add(s.limits.age)})
	case errors.Is(err, errUnknown):
		s.cache.Add(d, answer{unknown: err, until: time.Now().Add(min(unknownAge, s.limits.age))})
	}
	return labels, err
}

// access says who may call: callers with the token, or with a certificate of the client CA; without
// these settings, everybody.
type access struct {
	tokenFile    string // empty for none
	certificates bool
}

var errUnauthorized = errors.New("want the token of --bearer-token-file, or a certificate of --client-ca-file")

func (a access) check(r *http.Request) error {
	if a.tokenFile == "" && !a.certificates {
		return nil
	}
	if a.certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return nil
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if a.tokenFile == "" || !ok {
		return errUnauthorized
	}
	want, err := readToken(a.tokenFile) // each time, because it may change
	if err != nil {
		slog.Error("cannot read the token", "err", err)
		return errUnauthorized
	}
	hashGot, hashWant := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	if subtle.ConstantTimeCompare(hashGot[:], hashWant[:]) != 1 {
		return errUnauthorized
	}
	return nil
}

// readToken returns the token in the file, which is never empty.
func readToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" || len(token) > tokenMax {
		return "", fmt.Errorf("%s: got a token of %d bytes, want from 1 to %d", file, len(token), tokenMax)
	}
	return token, nil
}
