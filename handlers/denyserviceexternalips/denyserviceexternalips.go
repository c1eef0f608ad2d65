// Package denyserviceexternalips is the admission plugin
// DenyServiceExternalIPs.
//
// It keeps Services from claiming external IPs they did not have before.
// Whoever may create a Service can otherwise take over the traffic of any
// address by naming it in spec.externalIPs (CVE-2020-8554); in a cluster whose
// users are not all trusted one wants it on.
//
// Behaviour: k8s.io/kubernetes
// plugin/pkg/admission/network/denyserviceexternalips v1.36.3.
package denyserviceexternalips

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:      "DenyServiceExternalIPs",
		Summary:   "denies Services that start to use an external IP",
		Rules:     []handlers.Rule{handlers.CreateUpdate("services")},
		Validates: true,
		New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{Validate: validate}, nil
		},
	}
}

func validate(_ context.Context, review *codec.Review) handlers.Result {
	if isSubset(review.Object.Get("spec", "externalIPs"), review.OldObject.Get("spec", "externalIPs")) {
		return handlers.Allowed()
	}
	err := errors.New("Use of external IPs is denied by admission control")
	return handlers.Denied(handlers.Forbidden(review, err))
}

// isSubset reports whether every one of ips was there before. Addresses are
// compared as they are written.
func isSubset(ips, before codec.Value) bool {
	// An update nearly always leaves the addresses as they were, and the API
	// server writes both objects alike.
	if ips.JSON() == before.JSON() {
		return true
	}
	known := make(map[string]bool)
	for _, ip := range before.Elements() {
		known[ip.String()] = true
	}
	for _, ip := range ips.Elements() {
		if !known[ip.String()] {
			return false
		}
	}
	return true
}
