package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	corev1 "k8s.io/api/core/v1"
)

const (
	// zoneDelimiter is between the zones of a disk that is in several (k8s.io/cloud-provider
	// volume LabelMultiZoneDelimiter).
	zoneDelimiter = "__"
	// zonesAge is how long the list of a region's zones is used. A region gets a zone once in
	// years.
	zonesAge = time.Hour
)

// gceName matches the names and numbers of disks and zones. Nothing else is put into the path of a
// request.
var gceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// A gceConfig says where to look for disks.
type gceConfig struct {
	endpoint string   // of the Compute Engine API; empty for the usual one
	project  string   // empty for the project of the machine that this runs on
	region   string   // empty for the region of that machine
	zones    []string // empty for all zones of the region
}

// google reads the persistent disks of a project in a region. Behaviour:
// k8s.io/legacy-cloud-providers v0.30.14 gce GetLabelsForVolume.
type google struct {
	gceConfig
	service *compute.Service

	mu     sync.Mutex
	listed []string // zones of the region
	until  time.Time
}

// newGoogle makes a client with the application default credentials.
func newGoogle(ctx context.Context, c gceConfig) (*google, error) {
	options := []option.ClientOption{option.WithScopes(compute.ComputeReadonlyScope)}
	if c.endpoint != "" {
		options = append(options, option.WithEndpoint(c.endpoint))
	}
	service, err := compute.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("gce: cannot make a client: %w", err)
	}
	if c.project == "" {
		if c.project, err = metadata.ProjectIDWithContext(ctx); err != nil {
			return nil, fmt.Errorf("gce: no --gce-project, and the metadata server does not tell it: %w", err)
		}
	}
	if c.region == "" {
		zone, err := metadata.ZoneWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("gce: no --gce-region, and the metadata server does not tell it: %w", err)
		}
		if c.region, err = gceRegion(zone); err != nil {
			return nil, err
		}
	}
	return &google{gceConfig: c, service: service}, nil
}

func (g *google) labels(ctx context.Context, d disk) (map[string]string, error) {
	if !gceName.MatchString(d.id) {
		return nil, errUnknown
	}
	if d.zone == "" {
		return g.anywhere(ctx, d.id)
	}
	zones := make(map[string]bool)
	for zone := range strings.SplitSeq(d.zone, zoneDelimiter) {
		if zone = strings.TrimSpace(zone); zone == "" {
			return nil, fmt.Errorf("%w: zone label %q has an empty zone", errUnknown, d.zone)
		}
		zones[zone] = true
	}
	if len(zones) > 1 {
		return g.regional(ctx, d.id)
	}
	return g.zonal(ctx, d.id, d.zone)
}

// anywhere looks for a disk of the region, and in each zone.
func (g *google) anywhere(ctx context.Context, name string) (map[string]string, error) {
	found, regionalErr := g.regional(ctx, name)
	if regionalErr == nil {
		return found, nil
	}
	zones, err := g.zonesOfRegion(ctx)
	if err != nil {
		return nil, err
	}
	for _, zone := range zones {
		labels, err := g.zonal(ctx, name, zone)
		switch {
		case errors.Is(err, errUnknown):
		case err != nil:
			return nil, err
		case found != nil:
			return nil, fmt.Errorf("%w: it was found in more than one zone", errUnknown)
		default:
			found = labels
		}
	}
	if found == nil {
		return nil, regionalErr
	}
	return found, nil
}

func (g *google) zonal(ctx context.Context, name, zone string) (map[string]string, error) {
	if !gceName.MatchString(zone) {
		return nil, errUnknown
	}
	found, err := g.service.Disks.Get(g.project, zone, name).Fields("zone").Context(ctx).Do()
	if err != nil {
		return nil, gceError(err)
	}
	if z := strings.TrimSpace(lastPart(found.Zone)); z != "" {
		zone = z
	}
	region, err := gceRegion(zone)
	if err != nil {
		region = g.region // as in Kubernetes
	}
	return map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region}, nil
}

func (g *google) regional(ctx context.Context, name string) (map[string]string, error) {
	found, err := g.service.RegionDisks.Get(g.project, g.region, name).Fields("region", "replicaZones").Context(ctx).Do()
	if err != nil {
		return nil, gceError(err)
	}
	var zones []string
	for _, zone := range found.ReplicaZones {
		zones = append(zones, lastPart(zone))
	}
	if len(zones) == 0 {
		return nil, fmt.Errorf("GCE gave no replica zones for the regional disk %s", name)
	}
	slices.Sort(zones)
	return map[string]string{
		corev1.LabelTopologyZone:   strings.Join(slices.Compact(zones), zoneDelimiter),
		corev1.LabelTopologyRegion: lastPart(found.Region),
	}, nil
}

// zonesOfRegion returns the zones of the region: the configured ones, if there are any.
func (g *google) zonesOfRegion(ctx context.Context) ([]string, error) {
	if len(g.zones) > 0 {
		return g.zones, nil
	}
	g.mu.Lock()
	listed, until := g.listed, g.until
	g.mu.Unlock()
	if time.Now().Before(until) {
		return listed, nil
	}
	listed = nil
	err := g.service.Zones.List(g.project).Fields("nextPageToken", "items(name,region)").Pages(ctx, func(page *compute.ZoneList) error {
		for _, zone := range page.Items {
			if lastPart(zone.Region) == g.region {
				listed = append(listed, zone.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the zones of region %s: %w", g.region, err)
	}
	g.mu.Lock()
	g.listed, g.until = listed, time.Now().Add(zonesAge)
	g.mu.Unlock()
	return listed, nil
}

// gceError returns err, and errUnknown if GCE says that there is no such disk.
func gceError(err error) error {
	if answer, ok := errors.AsType[*googleapi.Error](err); ok && answer.Code == http.StatusNotFound {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}

// gceRegion returns the region of a zone (k8s.io/legacy-cloud-providers gce GetGCERegion).
func gceRegion(zone string) (string, error) {
	i := strings.LastIndex(zone, "-")
	if i < 0 {
		return "", fmt.Errorf("GCE gave zone %q, want one such as europe-west4-a", zone)
	}
	return zone[:i], nil
}

// lastPart returns the last part of a URL, which is the name of a zone or region.
func lastPart(u string) string { return u[strings.LastIndex(u, "/")+1:] }
