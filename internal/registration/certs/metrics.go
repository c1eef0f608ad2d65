package certs

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"
)

// resources are the values of the label "resource".
var resources = [...]string{"ca", "leaf", "path_token", "registered", "secret", "service"}

const (
	caResource = iota // indexes of resources
	leafResource
	tokenResource
	registeredResource
	secretResource
	serviceResource
)

// managerMetrics are the series of a Manager.
type managerMetrics struct {
	renewals [registeredResource + 1]*metrics.Counter
	failures [len(resources)]*metrics.Counter // none for ca, leaf and path_token
	repairs  *metrics.Counter
}

func newMetrics(m *Manager) *managerMetrics {
	all := new(managerMetrics)
	set := m.o.Metrics
	for i := range all.renewals {
		all.renewals[i] = set.NewCounter(fmt.Sprintf(`fastadmit_certificate_renewals_total{resource=%q}`, resources[i]))
	}
	for i := registeredResource; i < len(resources); i++ {
		all.failures[i] = set.NewCounter(fmt.Sprintf(`fastadmit_certificate_failures_total{resource=%q}`, resources[i]))
	}
	all.repairs = set.NewCounter("fastadmit_certificate_repairs_total")
	set.NewGauge("fastadmit_registered", func() float64 {
		if m.Registered() != nil {
			return 0
		}
		return 1
	})
	for i, expiry := range map[int]func() float64{caResource: m.caExpiry, leafResource: m.leafExpiry, registeredResource: m.registeredExpiry} {
		set.NewGauge(fmt.Sprintf(`fastadmit_certificate_expiry_timestamp_seconds{resource=%q}`, resources[i]), expiry)
	}
	return all
}

// caExpiry returns when the CA that signs expires, in seconds since 1970, 0 if
// there is none.
func (m *Manager) caExpiry() float64 {
	v := m.view.Load()
	if v == nil {
		return 0
	}
	return float64(v.cas[0].NotAfter.Unix())
}

// leafExpiry is caExpiry for the leaf that is served.
func (m *Manager) leafExpiry() float64 {
	pair := m.served.Load()
	if pair == nil {
		return 0
	}
	return float64(pair.Leaf.NotAfter.Unix())
}

// registeredExpiry is caExpiry for what the leaf that is served is trusted by:
// over all bundles, the first time when there is no CA left of which it is. It
// is 0 if that is now already, or nothing is registered.
func (m *Manager) registeredExpiry() float64 {
	v, pair := m.view.Load(), m.served.Load()
	if v == nil || pair == nil || len(v.bundles) == 0 {
		return 0
	}
	first, now := int64(0), m.clock.now()
	for i, bundle := range v.bundles {
		root, err := verify(pair, bundle, now)
		if err != nil {
			return 0
		}
		if expiry := root.NotAfter.Unix(); i == 0 || expiry < first {
			first = expiry
		}
	}
	return float64(first)
}

// tried counts and logs what failed; the log has each fault once, and when it is
// over. It reports whether there was none.
func (m *Manager) tried(resource int, fault *string, err error) bool {
	if err == nil {
		if *fault != "" {
			m.o.Log.Info("the certificates are managed again", "resource", resources[resource], "after", *fault)
			*fault = ""
		}
		return true
	}
	m.metrics.failures[resource].Inc()
	text := m.redact(err.Error())
	if *fault != text {
		m.o.Log.Warn("cannot manage the certificates, continuing with the cached objects", "resource", resources[resource], "error", text)
		*fault = text
	}
	return false
}
