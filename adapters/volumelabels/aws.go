package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
)

var (
	// ebsVolumeID matches the name of an EBS volume (k8s.io/csi-translation-lib plugins
	// awsVolumeRegMatch).
	ebsVolumeID = regexp.MustCompile(`^vol-[^/]*$`)
	// zoneRegion is the region in the name of an availability zone, also of a local zone
	// such as us-west-2-lax-1a (k8s.io/legacy-cloud-providers aws azToRegion).
	zoneRegion = regexp.MustCompile(`^([a-zA-Z]+-)+\d+`)
)

// unknownVolume contains EC2's error codes for a volume that does not exist, or for an impossible
// name.
var unknownVolume = map[string]bool{
	"InvalidVolume.NotFound": true, "InvalidVolumeID.Malformed": true, "InvalidParameterValue": true,
}

// amazon reads EBS volumes in the region of its client. Behaviour: k8s.io/legacy-cloud-providers
// v0.26.15 aws GetVolumeLabels.
type amazon struct{ client *ec2.Client }

// newAmazon makes a client with the SDK's ordinary chain of settings and credentials:
// environment, shared files, web identity, the instance's role.
func newAmazon(ctx context.Context) (*amazon, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion())
	if err != nil {
		return nil, fmt.Errorf("aws: cannot load the settings, such as the region from AWS_REGION: %w", err)
	}
	if c.Region == "" {
		return nil, errors.New("aws: got no region, want one: set AWS_REGION")
	}
	return &amazon{ec2.NewFromConfig(c)}, nil
}

func (a *amazon) labels(ctx context.Context, d disk) (map[string]string, error) {
	id, ok := ebsID(d.id)
	if !ok {
		return nil, errUnknown
	}
	answer, err := a.client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if refused, ok := errors.AsType[smithy.APIError](err); ok && unknownVolume[refused.ErrorCode()] {
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	switch {
	case err != nil:
		return nil, err
	case len(answer.Volumes) == 0:
		return nil, errUnknown
	case len(answer.Volumes) > 1:
		return nil, fmt.Errorf("EC2 gave %d volumes for %s, want 1", len(answer.Volumes), id)
	}
	var zone string
	if z := answer.Volumes[0].AvailabilityZone; z != nil {
		zone = *z
	}
	region := zoneRegion.FindString(zone)
	if region == "" {
		return nil, fmt.Errorf("EC2 gave availability zone %q for %s, want one with a region", zone, id)
	}
	return map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region}, nil
}

// ebsID returns EC2's name of a volume from that in a PersistentVolume: vol-1, aws://zone/vol-1 or
// aws:///vol-1. It returns false if no volume can have such a name.
func ebsID(name string) (id string, ok bool) {
	if strings.HasPrefix(name, "aws://") {
		u, err := url.Parse(name)
		if err != nil {
			return "", false
		}
		name = strings.Trim(u.Path, "/")
	}
	return name, ebsVolumeID.MatchString(name)
}
