package certs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// eventAfter is how long a registration fails before there is an Event. The
	// first attempts of a new pod fail until its readiness has made it an endpoint
	// of the Service, which takes a few seconds.
	eventAfter = 15 * time.Second

	// eventEvery is the time in which all replicas together make one Event of a
	// reason. kube-apiserver keeps Events for an hour (--event-ttl).
	eventEvery = 5 * time.Minute

	// eventMessageMax is what events.k8s.io allows (k8s.io/kubernetes
	// pkg/apis/core/validation/events.go NoteLengthLimit).
	eventMessageMax = 1024

	reasonRegistered    = "Registered"
	reasonNotRegistered = "NotRegistered"
)

// reported is what the Manager has reported about the registration. It belongs to the goroutine
// of Run.
type reported struct {
	since time.Time // since when it fails, zero if it does not
	told  bool      // an Event says that it fails
	names []string  // of the last Events, newest first
	fault string    // why no Event could be made
}

func deploymentsPath(namespace string) string {
	return "/apis/apps/v1/namespaces/" + namespace + "/deployments"
}
func eventsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }

// Registered returns nil if the webhook configurations are registered according to Options,
// with a caBundle that verifies the serving certificate. Otherwise, the error says what is
// missing. Do not use it for readiness: a webhook must not be registered before its Service
// has endpoints, and only ready pods are endpoints.
func (m *Manager) Registered() error {
	switch missing := m.missing.Load(); {
	case missing == nil:
		return errors.New("the API server has not been asked yet")
	case *missing != "":
		return errors.New(*missing)
	}
	return nil
}

// notRegistered returns the errors of the registration, "" if it is complete.
func (m *Manager) notRegistered() string {
	var errs []error
	if m.secretFault != "" && m.known == nil {
		errs = append(errs, errors.New(m.secretFault))
	}
	for _, r := range m.registrations {
		wanted := !r.complete || len(webhooks(r.desired.object)) > 0
		switch {
		case r.fault != "":
			errs = append(errs, errors.New(r.fault))
		case wanted && r.live == nil:
			errs = append(errs, fmt.Errorf("there is no %s %s", r.kind.kind, r.name))
		case wanted && r.complete && !r.applied:
			errs = append(errs, fmt.Errorf("%s %s is not applied yet", r.kind.kind, r.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return ""
}

// report publishes the state of the registration to Registered, and in an Event if it fails for
// longer than eventAfter.
func (m *Manager) report(ctx context.Context, now time.Time) {
	missing, r := m.notRegistered(), &m.reported
	m.missing.Store(&missing)
	m.show()
	switch {
	case missing == "" && r.told:
		r.told = !m.event(ctx, now, corev1.EventTypeNormal, reasonRegistered, "kube-apiserver calls the enabled plugins")
		fallthrough
	case missing == "":
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now
		m.wakeBy(now.Add(eventAfter))
	case now.Before(r.since.Add(eventAfter)):
		m.wakeBy(r.since.Add(eventAfter))
	default:
		r.told = m.event(ctx, now, corev1.EventTypeWarning, reasonNotRegistered, "kube-apiserver does not call the enabled plugins as configured: "+missing) || r.told
	}
}

// event makes an Event on Options.Deployment, and reports whether there is one.
// Its name is the same in all replicas for eventEvery, so that one of them makes
// it: that needs no right to read or change Events.
func (m *Manager) event(ctx context.Context, now time.Time, kind, reason, message string) bool {
	if m.o.Deployment == "" {
		return false
	}
	err := m.makeEvent(ctx, now, kind, reason, message)
	if err == nil {
		m.reported.fault = ""
		return true
	}
	if text := m.redact(err.Error()); text != m.reported.fault {
		m.reported.fault = text
		m.o.Log.Warn("cannot create an Event about the registration", "reason", reason, "error", text)
	}
	return false
}

func (m *Manager) makeEvent(ctx context.Context, now time.Time, kind, reason, message string) error {
	window := now.Truncate(eventEvery)
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", m.o.Deployment, reason, window.Unix()))
	name := fmt.Sprintf("%s.%x", m.o.Deployment, hash[:8])
	if slices.Contains(m.reported.names, name) {
		return nil
	}
	about, err := m.deployment(ctx)
	if err != nil {
		return err
	}
	host, err := os.Hostname() // of a pod, its name
	if err != nil {
		return err
	}
	at := metav1.NewTime(now)
	text, err := json.Marshal(&corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: m.o.SecretNamespace, Name: name},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Namespace: m.o.SecretNamespace, Name: m.o.Deployment, UID: about.UID,
		},
		Type: kind, Reason: reason, Message: truncate(host+": "+message, eventMessageMax),
		Source: corev1.EventSource{Component: "fastadmit", Host: host}, FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
	if err == nil {
		_, err = m.client.write(ctx, m.client.rest.Post().AbsPath(eventsPath(m.o.SecretNamespace)), text)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // which another replica made
		return fmt.Errorf("cannot create an Event in namespace %s: %w", m.o.SecretNamespace, err)
	}
	m.reported.names = append([]string{name}, m.reported.names[:min(len(m.reported.names), 1)]...) // one of each reason
	return nil
}

// deployment reads Options.Deployment.
func (m *Manager) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	var d appsv1.Deployment
	text, err := m.client.get(ctx, deploymentsPath(m.o.SecretNamespace), m.o.Deployment)
	if err == nil && text == nil {
		err = errors.New("there is none")
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &d)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read Deployment %s/%s: %w", m.o.SecretNamespace, m.o.Deployment, err)
	}
	return &d, nil
}

// truncate cuts a text to a number of bytes.
func truncate(text string, most int) string {
	const mark = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
