// Package stream sends a steady stream of requests through fastadmit's webhooks and counts the
// results.
package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

const (
	// Tenant is the namespace of the requests.
	Tenant = "tenant"

	// PerBurst is how many requests a Stream sends at once, so that the API server keeps
	// connections to all replicas.
	PerBurst = 10
	// BurstEvery is the time between two bursts that makes 100 requests a second.
	BurstEvery = 100 * time.Millisecond

	// One in unwantedEvery requests is for a Pod that must be denied.
	unwantedEvery = 5

	// requestMax bounds how long a request may take: twice the maximum timeout of a webhook.
	requestMax = 90 * time.Second
)

// A Stream creates Pods at a steady rate. Each must be mutated or denied.
type Stream struct {
	api   *cluster.APIServer
	every time.Duration // between two bursts

	mu         sync.Mutex
	down       bool // there is no API server
	sent       int
	lost       int
	unanswered int // because no API server was running
	texts      map[string]int
	took       []time.Duration // until the expected answers

	cancel context.CancelFunc
	ended  chan struct{}
}

// Start starts a Stream: PerBurst requests at once, and again whenever every has passed.
func Start(api *cluster.APIServer, every time.Duration) *Stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{api: api, every: every, texts: make(map[string]int), cancel: cancel, ended: make(chan struct{})}
	go s.run(ctx)
	return s
}

// run sends requests until ctx ends, and waits for the answers.
func (s *Stream) run(ctx context.Context) {
	defer close(s.ended)
	var answers sync.WaitGroup
	defer answers.Wait()
	for next := time.Now(); ; {
		for range PerBurst {
			s.mu.Lock()
			number, down := s.sent, s.down
			s.sent++
			s.mu.Unlock()
			answers.Go(func() {
				sent := time.Now()
				err := s.send(number)
				s.note(err, down, time.Since(sent))
			})
		}
		next = next.Add(s.every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
	}
}

// Stop stops sending, and waits for the answers.
func (s *Stream) Stop() {
	s.cancel()
	<-s.ended
}

// Count returns how many requests were sent.
func (s *Stream) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// errNotDenied means that a Pod was created that had to be denied.
var errNotDenied = errors.New("an unwanted Pod was not denied")

// send creates a Pod. It does not retry, as client-go would.
func (s *Stream) send(number int) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestMax)
	defer cancel()
	unwanted := number%unwantedEvery == 0
	err := s.api.Client.CoreV1().RESTClient().Post().Namespace(Tenant).Resource("pods").MaxRetries(0).
		Body(NewPod(fmt.Sprintf("p-%d", number), unwanted)).Do(ctx).Error()
	switch {
	case !unwanted:
		return err
	case err == nil:
		return errNotDenied // stored Pods are counted later
	case strings.Contains(err.Error(), "denied the request: LimitPodHardAntiAffinityTopology: "):
		return nil
	}
	return err
}

// digits are numbers such as ports, which may differ between errors of one kind.
var digits = regexp.MustCompile(`[0-9]{3,}`)

// unreadService is the end of an API server's error if it has not read the Service of a webhook, or its EndpointSlices.
var unreadService = regexp.MustCompile(`: (service "[^"]+" not found|no endpoints available for service "[^"]+")$`)

// SetDown tells the Stream that the API server is about to go down, or is up again.
func (s *Stream) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		time.Sleep(s.every) // the previous burst has arrived
	}
}

// note counts an answer. An error with a status is an API server's answer. An error without one
// means that the API server was down, which is not the webhook's fault. Nor is the error of an API
// server that is not ready and has not read its Services and EndpointSlices.
func (s *Stream) note(err error, down bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || errors.Is(err, errNotDenied) {
		s.took = append(s.took, took)
		return
	}
	_, answered := errors.AsType[*apierrors.StatusError](err)
	if down && (!answered || unreadService.MatchString(err.Error())) {
		s.unanswered++
	} else {
		s.lost++
	}
	s.texts[digits.ReplaceAllString(err.Error(), "#")]++
}

// NewPod returns a Pod that is never run. One plugin adds tolerations to it, or another one denies
// it.
func NewPod(name string, unwanted bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}},
	}
	if unwanted {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "c"}}, TopologyKey: corev1.LabelTopologyZone,
			}},
		}}
	}
	return pod
}

// Result counts the answers and the stored objects, and removes these.
func (s *Stream) Result(t *testing.T, event string) tally.Loss {
	t.Helper()
	r := tally.Loss{Event: event, Requests: s.sent, Lost: s.lost, Unanswered: s.unanswered}
	ctx, client := context.Background(), s.api.Client.CoreV1().Pods(Tenant)
	stored, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range stored.Items {
		spec := &stored.Items[i].Spec
		if len(spec.Tolerations) == 0 {
			r.MutationsMissed++
		}
		if spec.Affinity != nil {
			r.ValidationsMissed++
		}
	}
	if slices.Sort(s.took); len(s.took) > 0 {
		r.Median, r.P99 = s.took[len(s.took)/2], s.took[len(s.took)*99/100]
	}
	wanted := r.Requests - (r.Requests+unwantedEvery-1)/unwantedEvery
	if least := wanted - r.Lost - r.Unanswered; len(stored.Items)-r.ValidationsMissed < least {
		t.Errorf("got %d Pods stored, want at least %d", len(stored.Items), least)
	}
	cluster.Await(t, "thousands of Pods to be deleted", func() error {
		return client.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	})
	for _, text := range slices.Sorted(maps.Keys(s.texts)) {
		t.Logf("%d times: %s", s.texts[text], text)
	}
	return r
}
