package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/internal/seed"
)

// TestUpstream compares the labels of generated volumes with those that Kubernetes' own
// clients of the clouds give, which ask the same fakes. Building them takes minutes, so it
// runs with FASTADMIT_E2E_FULL only, as make e2e-full sets it.
func TestUpstream(t *testing.T) {
	if os.Getenv("FASTADMIT_E2E_FULL") == "" {
		t.Skip("FASTADMIT_E2E_FULL is not set")
	}
	f := newFake(t)
	g := seed.Rand(t)
	f.populate(g)
	aws, err := newAmazon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gce, err := newGoogle(t.Context(), f.google())
	if err != nil {
		t.Fatal(err)
	}
	upstream := startUpstream(t, f.url)
	denied := 0
	const cases = 10_000
	for range cases {
		volume, d := generate(g)
		c := cloud(gce)
		if d.provider == "aws" {
			c = aws
		}
		got, gotErr := c.labels(t.Context(), d)
		want := upstream(volume)
		if joined := want.Labels[corev1.LabelTopologyZone]; joined != "" { // in any order
			zones := strings.Split(joined, zoneDelimiter)
			slices.Sort(zones)
			want.Labels[corev1.LabelTopologyZone] = strings.Join(zones, zoneDelimiter)
		}
		if (gotErr != nil) != (want.Error != "") || !maps.Equal(got, want.Labels) {
			t.Fatalf("%+v: got %v and error %v, want %+v", d, got, gotErr, want)
		}
		if gotErr != nil {
			denied++
		}
	}
	if t.Logf("%d cases, of which Kubernetes denied %d", cases, denied); denied < cases/20 || denied > cases*19/20 {
		t.Error("these hardly compare anything")
	}
}

func pick(g *rand.Rand, of ...string) string { return of[g.IntN(len(of))] }

// names are the names of disks, most of which exist.
var names = []string{"vol-0", "vol-1", "vol-2", "vol-3", "disk-0", "disk-1", "disk-2", "disk-3", "12", "none", "", ".", "..", "a/b",
	"%2F", "é", `q"\`, "Up"}

// populate makes the disks of both clouds.
func (f *fake) populate(g *rand.Rand) {
	f.volumes, f.disks, f.replica = map[string][]string{}, map[string]map[string]string{}, map[string][]string{}
	for _, name := range []string{"vol-0", "vol-1", "vol-2", "vol-3"} {
		var zones []string
		for range 1 + g.IntN(4)/3 {
			zones = append(zones, pick(g, "us-east-1a", "us-east-1a", "us-west-2-lax-1a", "us-gov-west-1b", "eu-south-2", "eu-south-2c",
				"moon", ""))
		}
		f.volumes[name] = zones
	}
	f.volumes["vol-gone"] = nil
	for _, name := range []string{"disk-0", "disk-1", "disk-2", "disk-3", "12"} {
		for _, zone := range append(f.zones, "europe-west4-a", "moon") {
			if g.IntN(4) > 0 {
				continue
			}
			if f.disks[zone] == nil {
				f.disks[zone] = map[string]string{}
			}
			f.disks[zone][name] = pick(g, zonesURL+"zones/"+zone, zone, "")
		}
		if g.IntN(3) == 0 {
			for range g.IntN(4) {
				f.replica[name] = append(f.replica[name], zonesURL+"zones/"+pick(g, f.zones...))
			}
		}
	}
}

// generate makes a volume and the plugin's request for it.
func generate(g *rand.Rand) (*corev1.PersistentVolume, disk) {
	v := new(corev1.PersistentVolume)
	if g.IntN(2) == 0 {
		id := pick(g, append(names, "vol-gone")...)
		if g.IntN(3) > 0 {
			id = pick(g, "vol-0", "vol-1", "vol-2", "vol-3")
		}
		if g.IntN(2) == 0 {
			id = pick(g, "aws://us-east-1a/", "aws:///", "aws://", "aws://z/a/", "AWS:///", "aws://%zz/") + id + pick(g, "", "", "", "/")
		}
		v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
		return v, disk{provider: "aws", id: id}
	}
	d := disk{provider: "gce", id: pick(g, names...)}
	if g.IntN(3) > 0 {
		d.id = pick(g, "disk-0", "disk-1", "disk-2", "disk-3", "12")
	}
	v.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: d.id}
	for range g.IntN(3) {
		if d.zone != "" {
			d.zone += zoneDelimiter
		}
		d.zone += pick(g, "us-central1-a", "us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a", "moon", " ",
			"a/b", "..", "")
	}
	if d.zone != "" {
		v.Labels = map[string]string{pick(g, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone): d.zone}
	}
	return v, d
}

// An upstreamAnswer is the output of the command upstream.
type upstreamAnswer struct {
	Labels map[string]string
	Error  string
}

// startUpstream builds the command clouds of Kubernetes v1.26 and starts it.
func startUpstream(t *testing.T, address string) func(*corev1.PersistentVolume) upstreamAnswer {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "upstream")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./clouds")
	build.Dir = "../../e2e/removed/v1.26"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.Command(binary, address) //nolint:noctx // it ends when its input does, after t.Context
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, in, command) })
	answers := json.NewDecoder(bufio.NewReader(out))
	return func(volume *corev1.PersistentVolume) (a upstreamAnswer) {
		if err := json.NewEncoder(in).Encode(volume); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&a); err != nil {
			t.Fatal(err)
		}
		return a
	}
}

func stop(t *testing.T, in io.Closer, command *exec.Cmd) {
	t.Helper()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}
