package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// quietMax is the time without an event after which a list or watch is restarted.
	// kube-apiserver sends a bookmark every minute (k8s.io/apiserver
	// pkg/storage/cacher defaultBookmarkFrequency), so three are missing then.
	quietMax = 3 * time.Minute

	// liveMax is the timeout of a live request, which several callers may share: half
	// of a webhook's default timeoutSeconds of 10.
	liveMax = 5 * time.Second
)

// timing has the timeouts and intervals of requests to the API server.
type timing struct {
	// quiet is quietMax. Without it, a watch through a hanging proxy would never end.
	quiet time.Duration

	// live is liveMax.
	live time.Duration

	// backoff is the time between a failed list or watch and the next attempt.
	// client-go waits up to a minute; the cache would stay outdated as long after the
	// API server is back. An attempt every ten seconds for each kind costs the API
	// server little.
	backoff wait.Backoff

	// absent is how often the API server is asked whether it has an optional resource:
	// as often as backoff tries again at most.
	absent time.Duration
}

var defaultTiming = timing{
	quiet:   quietMax,
	live:    liveMax,
	absent:  10 * time.Second,
	backoff: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second},
}

// follow updates the store from the API server until ctx ends. client-go logs nothing,
// because the functions below record all errors.
func (s *store) follow(ctx context.Context) {
	if !s.kind.optional {
		s.reflect(ctx)
		return
	}
	for s.awaitResource(ctx) {
		following, gone := context.WithCancel(ctx)
		s.endReflect = gone
		s.reflect(following)
		select {
		case <-ctx.Done():
		case <-time.After(s.timing.backoff.Duration): // of several API servers, only some may have the resource
		}
	}
}

// reflect runs a reflector until ctx ends.
func (s *store) reflect(ctx context.Context) {
	silent := logr.Discard()
	calls := &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
	cache.NewReflectorWithOptions(calls, new(arrived), s, cache.ReflectorOptions{
		Name: s.kind.String(), Logger: &silent, Backoff: &s.timing.backoff,
	}).RunWithContext(klog.NewContext(ctx, silent))
}

// awaitResource waits until the API server has the resource, or returns an error other
// than NotFound. Until then, the store is synced and empty. It returns false if ctx ends
// before.
func (s *store) awaitResource(ctx context.Context) bool {
	for {
		asking, cancel := context.WithTimeout(ctx, s.timing.live)
		err := s.client.Get().Resource(s.kind.resource).
			VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(asking).Error()
		cancel()
		if !apierrors.IsNotFound(err) {
			return ctx.Err() == nil
		}
		_ = s.Replace(nil, "") // without objects, there is no error
		select {
		case <-ctx.Done(): // the next request fails, and the loop ends
		case <-time.After(s.timing.absent):
		}
	}
}

var (
	errQuiet = errors.New("the API server sent nothing for too long")
	errEmpty = errors.New("the API server ended a watch without an event")

	errStopped = errors.New("the reflector does not need the watch any more")
)

// list implements cache.ListWithContextFunc.
func (s *store) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if !s.pace.wait(ctx, s.timing.backoff) {
			return nil, context.Cause(ctx)
		}
		s.expect()
	}
	asking, cancel := context.WithTimeoutCause(ctx, s.timing.quiet, errQuiet)
	defer cancel()
	list, err := s.ask(asking, options)
	if err != nil && ctx.Err() == nil {
		s.refused(err)
	}
	return list, err
}

// ask requests a list.
func (s *store) ask(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	body, err := s.client.Get().Resource(s.kind.resource).VersionedParams(&options, metav1.ParameterCodec).Stream(streamed(ctx))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list, err := s.readList(body)
	if err != nil {
		return nil, fmt.Errorf("cannot read the list of %s: %w", s.kind, err)
	}
	return list, nil
}

// refused records the error of a list or watch. NotFound means that the API server does
// not have the resource; if the kind is optional, the reflector then ends.
func (s *store) refused(err error) {
	switch {
	case !apierrors.IsNotFound(err):
		s.failed(err)
	case s.kind.optional:
		s.endReflect()
	default:
		s.failed(fmt.Errorf("the API server does not have the resource %s of %s; "+
			"if it is one of a CustomResourceDefinition, install that: %w", s.kind.resource, s.kind.version, err))
	}
}

// watch implements cache.WatchFuncWithContext.
func (s *store) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if !s.pace.wait(ctx, s.timing.backoff) {
		return nil, context.Cause(ctx)
	}
	options.Watch = true
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	if initial {
		s.expect()
	}
	watching, cancel := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(s.timing.quiet, func() { cancel(errQuiet) })
	body, err := s.client.Get().Resource(s.kind.resource).VersionedParams(&options, metav1.ParameterCodec).Stream(streamed(watching))
	if err != nil {
		quiet.Stop()
		cancel(nil)
		if ctx.Err() == nil && (!initial || !listsInstead(err)) {
			s.refused(err)
		}
		return nil, err
	}
	out := make(chan watch.Event)
	passed := watch.NewProxyWatcher(out)
	go func() { // the end of watching ends reads of the body
		select {
		case <-passed.StopChan():
			cancel(errStopped)
		case <-watching.Done():
		}
	}()
	go func() {
		err := s.pass(watching, newEventReader(body), out, quiet, initial)
		if err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		quiet.Stop()
		cancel(nil)
		body.Close()
		close(out)
	}()
	return passed, nil
}

// listsInstead reports whether the reflector sends a list request after this
// answer to a watch that asked for initial events. An API server without the
// feature WatchList answers 422. One whose etcd is older than v3.4.31 or v3.5.13,
// or was not asked for its version yet, answers 500, "the required storage feature
// RequestWatchProgress is disabled" (k8s.io/apiserver pkg/storage/cacher/cacher.go).
// Neither counts as a failure: the list follows at once, and records its own error.
// After the answers excluded here the reflector repeats the watch (k8s.io/client-go
// tools/cache/reflector.go watchList).
func listsInstead(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return answered && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err) &&
		!apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// pass forwards events until there are no more, or until ctx ends. It returns an error if
// the API server sent no event. initial is true if the watch asked for initial events.
func (s *store) pass(ctx context.Context, events *eventReader, out chan<- watch.Event, quiet *time.Timer, initial bool) error {
	end := errEmpty
	for {
		event, err := s.receive(events)
		switch {
		case errors.Is(context.Cause(ctx), errStopped):
			return nil
		case ctx.Err() != nil: // ends the read
			return context.Cause(ctx)
		case isEnd(err):
			return end
		case err != nil: // the reflector lists again
			err = fmt.Errorf("cannot read an event of the watch: %w", err)
			s.failed(err)
			event = errorEvent(apierrors.NewInternalError(err))
		case event.Type == watch.Error:
			if err := apierrors.FromObject(event.Object); !initial || !listsInstead(err) {
				s.failed(err)
			}
		default:
			quiet.Reset(s.timing.quiet)
			s.contacted()
		}
		end = nil
		if isPeriodic(event) && s.canRecover() {
			event = errorEvent(apierrors.NewResourceExpired("objects that were too large for the cache fit again"))
		}
		select {
		case out <- event:
		case <-ctx.Done(): // at the latest when the reflector stops the watch
		}
		if event.Type == watch.Error {
			return nil
		}
	}
}

// isEnd reports whether the body of a watch ended, as it does after some minutes.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err)
}

// isPeriodic reports whether an event is one of the bookmarks that come every minute. The
// bookmark at the end of the initial events is not: what is missing is about to be there.
func isPeriodic(event watch.Event) bool {
	a, ok := event.Object.(*arrived)
	return ok && event.Type == watch.Bookmark && a.Annotations[metav1.InitialEventsAnnotationKey] == ""
}

func errorEvent(err *apierrors.StatusError) watch.Event {
	status := err.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
