package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
	"github.com/fastadmit/fastadmit/internal/server/status"
	"github.com/fastadmit/fastadmit/internal/shadow"
	"github.com/fastadmit/fastadmit/internal/tracing"
	"github.com/fastadmit/fastadmit/internal/turns"
)

const (
	// bodyBytesMax is the largest review accepted. kube-apiserver escapes "<",
	// ">" and "&" sixfold: an update of an object of 2 MiB, the most that it
	// stores, makes a review of up to 25 MiB, and 31 MB were seen.
	bodyBytesMax = 32 << 20

	// headerBytesMax is the largest header block accepted. kube-apiserver sends
	// 245 bytes; tracing headers, which its clients choose, and a bearer token
	// add to them. It is also the size of each connection's read buffer.
	headerBytesMax = 16 << 10

	// RecentDenials is how many of the last denials and failures the status page shows by default. One takes up to 4 KB, and the reviews
	// of the last ones 1 MiB.
	RecentDenials = 50

	// shortMessageMax is the longest message of a refusal if there is no memory for a longer one.
	shortMessageMax = 1 << 10
)

// An endpoint is a path that answers reviews.
type endpoint struct {
	name    string // the path without the slash before it
	phase   admission.Phase
	chain   *admission.Chain // the plugins that run
	metrics *endpointMetrics
	shadow  *shadow.Trial // nil if nothing is tried
}

// Server answers admission reviews over HTTPS.
type Server struct {
	serving      atomic.Pointer[serving]
	images       atomic.Pointer[images] // nil if no ImageReviews are answered
	metrics      *serverMetrics
	log          *slog.Logger
	strangersLog *slog.Logger // for what anybody can cause
	timeouts     timeouts
	limits       limits
	load         load
	memory       *reviewMemory
	retained     atomic.Int64 // bytes that known connections keep for their next requests
	retainedMax  int64
	callers      *Callers
	turns        *turns.Turns
	recorder     *recording.Recorder // nil if no reviews are recorded
	tracer       *tracing.Tracer     // nil if no reviews are traced
	recent       *status.Recent      // nil if no denials are kept
	explaining   sync.Mutex          // held while a denial is explained
	started      time.Time
	shadow       *shadow.Shadow
	connections  atomic.Pointer[connTable] // nil before listen
	looked       atomic.Int64              // the time of the last check for unread answers, as of sinceStart

	// stuck is how many calls were answered because their plugin did not return,
	// and have not returned since.
	stuck        atomic.Int64
	stacksLogged time.Time // of the watcher

	// accepting is set while reviews are answered, until the server is about to end.
	accepting atomic.Bool
	// draining is set when the server is about to end: every answer closes its
	// connection.
	draining atomic.Bool
}

// Options configure a Server.
type Options struct {
	// Log is the log. See NewLog.
	Log *slog.Logger
	// Metrics get the series of the server.
	Metrics *metrics.Set
	// Callers are who may call. They must be loaded.
	Callers *Callers
	// RequestsMax is the maximum number of requests in flight, and RequestBytesMax that of
	// the bytes of their headers and bodies. 0 bytes means a share of the process' memory limit.
	RequestsMax, RequestBytesMax int64
	// ReviewMemoryMax is the maximum memory for large reviews, in bytes, in addition to their
	// bodies. 0 means a share of the process' memory limit.
	ReviewMemoryMax int64
	// ConnectionsMax is the maximum number of open connections, and
	// ConnectionsPerAddressMax that of connections from one address which had no review
	// answered. 0 means a number that follows from the limits of the process.
	ConnectionsMax, ConnectionsPerAddressMax int64
	// ConnectionAgeMax is the age at which a connection is closed after an answer. 0 means
	// never.
	ConnectionAgeMax time.Duration
	// Recorder records reviews and their answers. It may be nil.
	Recorder *recording.Recorder
	// RecentDenials is how many denials and failures the status page shows.
	RecentDenials int
	// Tracer makes spans of reviews. It may be nil.
	Tracer *tracing.Tracer
}

// New returns a server without plugins; see Use. It returns an error if the process may not
// have as many file descriptors as the options ask for.
func New(o *Options) (*Server, error) {
	limits, err := newLimits(o.ConnectionsMax, o.ConnectionsPerAddressMax, descriptorsMax(), memory.Share(memory.ConnectionsShare, 0))
	if err != nil {
		return nil, err
	}
	s := &Server{
		callers: o.Callers, recorder: o.Recorder, tracer: o.Tracer, log: o.Log, strangersLog: newStrangersLog(o.Log),
		timeouts: defaultTimeouts, limits: limits, recent: status.NewRecent(o.RecentDenials), started: time.Now(),
	}
	s.timeouts.maxAge = o.ConnectionAgeMax
	s.load.requestsMax, s.load.bytesMax = o.RequestsMax, cmp.Or(o.RequestBytesMax, requestBytes())
	s.load.grace, s.load.pace = arrivalGrace, arrivalPace
	s.turns = turns.New(o.Metrics)
	s.shadow = shadow.New(&shadow.Options{
		Turns: s.turns, Busy: s.load.isBusy, MemoryOf: memoryOf, Log: newStrangersLog(o.Log), Metrics: o.Metrics,
	})
	s.memory = newReviewMemory(cmp.Or(o.ReviewMemoryMax, memory.Share(memory.ReviewsShare, reviewMemoryDefault)))
	s.retainedMax = memory.Share(memory.RetainedShare, retainedDefault)
	s.memory.makeRoom = s.dropUnread
	s.metrics = newServerMetrics(o.Metrics, &s.load)
	s.metrics.set.NewGauge("fastadmit_stuck_requests", func() float64 { return float64(s.stuck.Load()) })
	s.metrics.set.NewGauge("fastadmit_connections_kept_bytes", func() float64 { return float64(s.retained.Load()) })
	s.metrics.set.NewGauge("fastadmit_review_memory_reserved_bytes", func() float64 { return float64(s.memory.reserved()) })
	s.Use(new(admission.Chain), "")
	return s, nil
}

// serving is what a server serves until it is given something else.
type serving struct {
	chain     *admission.Chain
	digest    string // of the configuration
	since     time.Time
	endpoints map[string]*endpoint
}

// Chain returns the chain that Use was given last.
func (s *Server) Chain() *admission.Chain { return s.serving.Load().chain }

// Use makes the server run the chain's plugins. Requests that have begun keep the previous
// chain. The chain must not be in use yet. digest identifies the configuration.
func (s *Server) Use(chain *admission.Chain, digest string) { s.UseWithShadow(chain, digest, nil) }

// Shadow returns the shadow of the server.
func (s *Server) Shadow() *shadow.Shadow { return s.shadow }

// UseWithShadow is Use with what the shadow tries, nil for nothing.
func (s *Server) UseWithShadow(chain *admission.Chain, digest string, tried *shadow.Config) {
	trial := s.shadow.Use(tried, digest)
	plugins := chain.Plugins()
	counted := s.metrics.plugins(plugins)
	chain.Observe = func(run admission.Run) {
		counted[run.Plugin].observe(run)
		s.logFailure(plugins[run.Plugin].Name, &run)
		s.tracer.Plugin(plugins[run.Plugin].Name, run)
	}
	n := &serving{chain: chain, digest: digest, since: time.Now(), endpoints: make(map[string]*endpoint)}
	add := func(name string, phase admission.Phase, keep func(*admission.Plugin, *admission.Settings) bool) {
		e := &endpoint{name: name, phase: phase, chain: chain.Select(keep), metrics: s.metrics.endpoint(name, phase), shadow: trial}
		// In lower case as well: the path of a webhook's service must have no
		// capitals (k8s.io/apiserver pkg/util/webhook/validation.go).
		n.endpoints["/"+name] = e
		n.endpoints["/"+strings.ToLower(name)] = e
	}
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		name := phase.String()
		add(name, phase, func(*admission.Plugin, *admission.Settings) bool { return true })
		add(name+"/fail", phase, func(_ *admission.Plugin, settings *admission.Settings) bool {
			return settings.FailurePolicy != admissionregistrationv1.Ignore
		})
		add(name+"/ignore", phase, func(_ *admission.Plugin, settings *admission.Settings) bool {
			return settings.FailurePolicy == admissionregistrationv1.Ignore
		})
		for _, own := range plugins {
			if phase == admission.Mutate && own.Mutates || phase == admission.Validate && own.Validates {
				add(name+"/"+own.Name, phase, func(plugin *admission.Plugin, _ *admission.Settings) bool { return plugin == own })
			}
		}
	}
	s.serving.Store(n)
}

// logFailure logs why a plugin failed, if it did.
func (s *Server) logFailure(plugin string, run *admission.Run) {
	if run.Err == nil {
		return
	}
	if panicked, ok := errors.AsType[*admission.PanicError](run.Err); ok {
		s.log.Error("plugin panicked", "plugin", plugin, "phase", run.Phase.String(),
			"panic", admission.PanicText(panicked.Value), "stack", string(panicked.Stack))
		return
	}
	s.log.Error("plugin failed", "plugin", plugin, "phase", run.Phase.String(), "error", run.Err.Error())
}

// http returns the HTTP server. Every limit is set on purpose. The listener
// bounds the connections, and these bound the time to write.
func (s *Server) http() *fasthttp.Server {
	// Larger buffers are not kept, also after what is no request. It is for the whole process.
	fasthttp.SetBodySizePoolLimit(cheapBytes, cheapBytes)
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.refuseBroken,
		HeaderReceived:               s.limitBody,
		MaxRequestBodySize:           bodyBytesMax,
		ReadBufferSize:               headerBytesMax,
		ReadTimeout:                  s.timeouts.read,
		IdleTimeout:                  s.timeouts.idle,
		Concurrency:                  math.MaxInt32,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       httpLog{s.log},
	}
}

// handle answers one request. Neither a panic of our own nor a goroutine that is
// ended may end the process.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*conn)
	returned := false
	defer func() {
		if v := recover(); !returned {
			s.contain(ctx, c, v)
		}
		c.bodyBuffer.drop(&ctx.Request)
		s.load.forget(c)
		if c.Conn != nil {
			s.retain(ctx, c)
		}
	}()
	c.answering.end()
	start := ctx.Time()
	if s.draining.Load() || c.isOld(start) {
		ctx.SetConnectionClose()
	}
	e := s.serving.Load().endpoints[string(ctx.Path())]
	if e == nil {
		if e = s.behindToken(ctx.Path()); e == nil && s.reviewImages(ctx, c, start) {
			returned = true
			return
		}
	}
	if s.accept(ctx, e) {
		s.review(ctx, c, call{endpoint: e, start: start})
	}
	returned = true
}

// review answers a review.
func (s *Server) review(ctx *fasthttp.RequestCtx, c *conn, call call) {
	body := ctx.PostBody()
	s.metrics.requestBytes.Add(len(body))
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		s.refuse(ctx, fasthttp.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	callCtx := s.acquireContext(call.start, ctx.QueryArgs(), review, body)
	defer callCtx.release()
	call.operation, call.deadline = review.Operation().Index(), callCtx.deadline
	if !s.begin(ctx, c, call, callCtx) {
		return
	}
	e := call.endpoint
	reviewCtx, span := s.tracer.Start(callCtx, &ctx.Request.Header, e.name, review, call.start)
	outcome, err := e.chain.Review(reviewCtx, review, e.phase)
	span.End(outcome, review.Response.DeniedBy, err)
	if !s.end(c) {
		return // it took so long that it was answered without
	}
	if errors.Is(err, codec.ErrNoMemory) {
		s.refuseNoMemory(ctx, body)
		return
	}
	if failure, ok := errors.AsType[*admission.FailureError](err); ok {
		s.refuse(ctx, fasthttp.StatusInternalServerError, "InternalError", failure.Error())
		e.metrics.observe(call.operation, outcome, call.start, call.deadline)
		s.recent.Add(status.Decision{
			Time: call.start, Endpoint: e.name, Plugin: failure.Plugin, Decision: outcome.String(),
			Message: failure.Error(),
		}, review, body)
		s.record(e, review, body, &recording.Answer{Decision: recording.Failed, Plugin: failure.Plugin, Message: failure.Error()})
		return
	}
	if err != nil {
		s.refuse(ctx, fasthttp.StatusBadRequest, "BadRequest", "cannot read AdmissionReview: "+err.Error())
		return
	}
	if !s.answer(ctx, c, review, &callCtx.memory) {
		return
	}
	c.admit()
	e.metrics.observe(call.operation, outcome, call.start, call.deadline)
	if outcome == admission.OutcomeDenied {
		s.denied(ctx, call, review, body)
	}
	if s.recorder != nil || e.shadow != nil {
		s.recordDecision(e, review, body)
	}
}

// denied counts, logs and keeps a denial.
func (s *Server) denied(ctx *fasthttp.RequestCtx, call call, review *codec.Review, body []byte) {
	if review.Response.Status.Code == fasthttp.StatusRequestEntityTooLarge {
		s.metrics.tooLarge.Inc()
	}
	if s.log.Enabled(ctx, slog.LevelInfo) {
		s.logDenial(ctx, call.endpoint, review)
	}
	s.recent.Add(status.Decision{
		Time: call.start, Endpoint: call.endpoint.name, Plugin: review.Response.DeniedBy, Decision: admission.OutcomeDenied.String(),
		Message: review.Response.Status.Message,
	}, review, body)
}

// recordDecision is record for a review that was allowed or denied.
func (s *Server) recordDecision(e *endpoint, review *codec.Review, body []byte) {
	answer := recording.Answer{Decision: recording.Denied, Plugin: review.Response.DeniedBy}
	if review.Response.Allowed {
		answer.Decision = recording.Allowed
	}
	s.record(e, review, body, &answer)
}

// record hands a review and its answer to who records reviews, and to the shadow.
func (s *Server) record(e *endpoint, review *codec.Review, body []byte, answer *recording.Answer) {
	answer.Endpoint, answer.Configuration = e.name, s.serving.Load().digest
	if s.recorder != nil {
		s.recorder.Take(answer, review, body)
	}
	if e.shadow != nil {
		e.shadow.Take(answer, review, body)
	}
}

var contentTypeJSON = []byte("application/json")

// accept refuses requests that carry no review.
func (s *Server) accept(ctx *fasthttp.RequestCtx, e *endpoint) bool {
	switch {
	case !s.callers.knows(&ctx.Request.Header):
		s.unauthorized(ctx)
	case s.load.requests.Load() >= s.load.requestsMax:
		s.overloaded(ctx)
	case e == nil:
		s.refuse(ctx, fasthttp.StatusNotFound, "NotFound", s.unknownPath(string(s.callers.withoutToken(ctx.Path()))))
	case !ctx.IsPost():
		ctx.Response.Header.Set(fasthttp.HeaderAllow, fasthttp.MethodPost)
		ctx.Response.Header.Set(certs.ConfigurationHeader, s.serving.Load().digest)
		s.refuse(ctx, fasthttp.StatusMethodNotAllowed, "MethodNotAllowed",
			fmt.Sprintf("method: got %s, want POST", ctx.Method()))
	case !isJSON(ctx.Request.Header.ContentType()):
		s.refuse(ctx, fasthttp.StatusUnsupportedMediaType, "UnsupportedMediaType",
			fmt.Sprintf("Content-Type: got %q, want application/json", ctx.Request.Header.ContentType()))
	case len(ctx.Request.Header.ContentEncoding()) > 0:
		s.refuse(ctx, fasthttp.StatusUnsupportedMediaType, "UnsupportedMediaType",
			fmt.Sprintf("Content-Encoding: got %q, want none", ctx.Request.Header.ContentEncoding()))
	default:
		return true
	}
	return false
}

// unauthorized refuses a request without the credentials that are asked for.
func (s *Server) unauthorized(ctx *fasthttp.RequestCtx) {
	s.refuse(ctx, fasthttp.StatusUnauthorized, "Unauthorized", s.callers.loaded.Load().missing(&ctx.Request.Header))
}

// isJSON accepts application/json with any parameters.
func isJSON(contentType []byte) bool {
	mediaType, _, _ := bytes.Cut(contentType, []byte(";"))
	return bytes.EqualFold(bytes.TrimSpace(mediaType), contentTypeJSON)
}

func (s *Server) unknownPath(path string) string {
	phase, plugin, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if ok && (phase == "mutate" || phase == "validate") {
		return fmt.Sprintf("plugin %q is not enabled or does not %s", plugin, phase)
	}
	return fmt.Sprintf("path: got %q, want /mutate or /validate, or one of these followed by /fail, /ignore or /<Plugin>, also in lower case%s", redactPath(path), s.imagesPath())
}

// refuse answers with an HTTP error and a metav1.Status, whose message
// kube-apiserver shows to the user.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, code int, reason, message string) {
	s.metrics.refused(code)
	status := codec.Status{Code: int32(code), Reason: reason, Message: codec.TruncateString(message, codec.MessageBytesMax)}
	body := status.AppendDocument(nil)
	var held reservation
	if len(body) > uncountedMax && !s.memory.extend(&held, int64(cap(body))) {
		status.Message = codec.TruncateString(message, shortMessageMax)
		body = status.AppendDocument(nil)
	}
	ctx.Response.ResetBody()
	ctx.SetStatusCode(code)
	ctx.Response.Header.SetContentTypeBytes(contentTypeJSON)
	setBody(ctx, body, held)
}

// refuseBroken answers what is no request that could be read to its end. The
// connection is closed afterwards.
func (s *Server) refuseBroken(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	c := ctx.Conn().(*conn)
	switch {
	case c.state.isTaken():
		return // the connection was closed, nobody reads an answer
	case c.state.isDropped():
		s.overloaded(ctx)
	case errors.Is(err, fasthttp.ErrBodyTooLarge) && !s.callers.knows(&ctx.Request.Header):
		s.unauthorized(ctx)
	case errors.Is(err, fasthttp.ErrBodyTooLarge) && ctx.Request.Header.ContentLength() == chunkedLength:
		s.refuse(ctx, fasthttp.StatusLengthRequired, "LengthRequired", "Transfer-Encoding: got chunked, want a body with Content-Length")
	case errors.Is(err, fasthttp.ErrBodyTooLarge) && ctx.Request.Header.ContentLength() <= bodyBytesMax:
		s.overloaded(ctx)
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		s.refuse(ctx, fasthttp.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
			fmt.Sprintf("body: got more than %d bytes, the maximum", bodyBytesMax))
	case errors.As(err, &small):
		s.refuse(ctx, fasthttp.StatusRequestHeaderFieldsTooLarge, "RequestHeaderFieldsTooLarge",
			fmt.Sprintf("header: got more than %d bytes, the maximum", headerBytesMax))
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &network) && network.Timeout():
		s.refuse(ctx, fasthttp.StatusRequestTimeout, "Timeout",
			fmt.Sprintf("the request did not arrive within %s", s.timeouts.read))
	default:
		text, _, _ := strings.Cut(err.Error(), `"`) // what fasthttp quotes may be a credential or a path token
		s.refuse(ctx, fasthttp.StatusBadRequest, "BadRequest", "cannot read the HTTP request: "+strings.TrimRight(text, ": "))
	}
	dropRequest(ctx)
	s.load.forget(c)
	c.linger = true
}

// logDenial logs who was denied what by which plugin. Of contents of objects it
// logs what the message quotes.
func (s *Server) logDenial(ctx *fasthttp.RequestCtx, e *endpoint, review *codec.Review) {
	resource := review.Resource()
	s.log.LogAttrs(ctx, slog.LevelInfo, "denied",
		slog.String("endpoint", e.name),
		slog.String("plugin", review.Response.DeniedBy),
		slog.String("uid", review.UID()),
		slog.String("user", review.Username()),
		slog.String("operation", string(review.Operation())),
		slog.String("group", resource.Group),
		slog.String("resource", resource.Resource),
		slog.String("subresource", review.SubResource()),
		slog.String("namespace", review.Namespace()),
		slog.String("name", review.Name()),
		slog.Int("code", int(review.Response.Status.Code)),
		slog.String("reason", review.Response.Status.Reason),
		slog.String("message", review.Response.Status.Message),
	)
}

// httpLog takes what fasthttp logs: connections that broke.
type httpLog struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l httpLog) Printf(format string, args ...any) {
	l.log.Debug("connection", "error", fmt.Sprintf(format, args...))
}
