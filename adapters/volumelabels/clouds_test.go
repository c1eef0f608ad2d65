package main

import (
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func topology(zone, region string) map[string]string {
	return map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region}
}

// check compares the labels of a disk; want is an error's text if no labels are expected.
func check(t *testing.T, c cloud, id, zone string, want map[string]string, wantErr string) {
	t.Helper()
	got, err := c.labels(t.Context(), disk{id: id, zone: zone})
	switch {
	case wantErr == "unknown" && errors.Is(err, errUnknown):
	case wantErr != "" && wantErr != "unknown" && err != nil && !errors.Is(err, errUnknown) && strings.Contains(err.Error(), wantErr):
	case wantErr == "" && err == nil && maps.Equal(got, want):
	default:
		t.Errorf("disk %q, zone %q: got %v and error %v, want %v and error %q", id, zone, got, err, want, wantErr)
	}
}

func TestAWS(t *testing.T) {
	f := newFake(t)
	f.volumes = map[string][]string{
		"vol-1": {"us-east-1b"}, "vol-local": {"us-west-2-lax-1a"}, "vol-gov": {"us-gov-west-1a"},
		"vol-none": {}, "vol-two": {"us-east-1a", "us-east-1b"}, "vol-nowhere": {""}, "vol-odd": {"moon"},
	}
	a, err := newAmazon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"vol-1", "aws://us-east-1b/vol-1", "aws:///vol-1", "aws:////vol-1/", "aws://elsewhere/vol-1"} {
		check(t, a, id, "ignored", topology("us-east-1b", "us-east-1"), "")
	}
	check(t, a, "vol-local", "", topology("us-west-2-lax-1a", "us-west-2"), "")
	check(t, a, "vol-gov", "", topology("us-gov-west-1a", "us-gov-west-1"), "")
	check(t, a, "vol-none", "", nil, "unknown")
	check(t, a, "vol-two", "", nil, "EC2 gave 2 volumes for vol-two, want 1")
	check(t, a, "vol-nowhere", "", nil, `EC2 gave availability zone ""`)
	check(t, a, "vol-odd", "", nil, `EC2 gave availability zone "moon"`)
	asked := f.asked.Load()
	for _, id := range []string{"", ".", "..", "i-1", "aws://", "aws://z/a/vol-1", "aws://%zz/vol-1", "VOL-1", "vol-1/../vol-1"} {
		check(t, a, id, "", nil, "unknown")
	}
	if got := f.asked.Load(); got != asked {
		t.Errorf("got %d questions about names that no volume can have, want none", got-asked)
	}
	check(t, a, "vol-2", "", nil, "unknown")
	f.broken.Store(true)
	check(t, a, "vol-1", "", nil, "403")
	t.Setenv("AWS_REGION", "")
	if _, err := newAmazon(t.Context()); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: got error %v, want one that names AWS_REGION", err)
	}
}

// TestGCE includes the cases of upstream's own test (gce_disks_test.go TestGetLabelsForVolume).
func TestGCE(t *testing.T) {
	f := newFake(t)
	const a, b, c, far = "us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a"
	f.disks = map[string]map[string]string{
		a: {"one": zonesURL + "zones/" + a, "twice": zonesURL + "zones/" + a, "bare": ""}, b: {"12345": zonesURL + "zones/" + b},
		c: {"twice": zonesURL + "zones/" + c, "both": zonesURL + "zones/" + c}, far: {"away": zonesURL + "zones/" + far},
		"moon": {"odd": ""},
	}
	f.replica = map[string][]string{"wide": {zonesURL + "zones/" + c, zonesURL + "zones/" + a}, "both": {zonesURL + "zones/" + b},
		"empty": {}}
	g, err := newGoogle(t.Context(), f.google())
	if err != nil {
		t.Fatal(err)
	}
	in := func(zone string) map[string]string { return topology(zone, "us-central1") }
	check(t, g, "one", "", in(a), "")
	check(t, g, "one", a, in(a), "")
	check(t, g, "one", a+"__"+a, nil, "unknown") // one zone, but none with that name
	check(t, g, "one", b, nil, "unknown")
	check(t, g, "one", a+"__"+b, nil, "unknown") // no regional disk
	check(t, g, "one", a+"__", nil, "unknown")
	check(t, g, "bare", "", in(a), "")
	check(t, g, "12345", "", in(b), "")
	check(t, g, "twice", "", nil, "unknown")
	check(t, g, "twice", c, in(c), "")
	check(t, g, "away", "", nil, "unknown")
	check(t, g, "away", far, topology(far, "europe-west4"), "")
	check(t, g, "wide", "", in(a+"__"+c), "")
	check(t, g, "wide", a+"__"+c, in(a+"__"+c), "")
	check(t, g, "wide", a, nil, "unknown")
	check(t, g, "both", "", in(b), "")
	check(t, g, "both", c, in(c), "")
	check(t, g, "empty", a+"__"+b, nil, "no replica zones")
	check(t, g, "odd", "moon", in("moon"), "")
	check(t, g, "missing", "", nil, "unknown")
	asked := f.asked.Load()
	for _, name := range []string{"", ".", "..", "a/b", "%2F", "..%2f..", "One", "é", strings.Repeat("x", 64)} {
		check(t, g, name, "", nil, "unknown")
		check(t, g, name, a, nil, "unknown")
		if name != "" {
			check(t, g, "one", name, nil, "unknown")
		}
	}
	if got := f.asked.Load(); got != asked {
		t.Errorf("got %d questions about names that no disk and no zone can have, want none", got-asked)
	}
	limited := f.google()
	limited.zones = []string{b}
	only, err := newGoogle(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	check(t, only, "one", "", nil, "unknown")
	f.broken.Store(true)
	check(t, g, "one", "", nil, "403")
	check(t, g, "one", a, nil, "403")
	check(t, g, "wide", a+"__"+b, nil, "403")
}
