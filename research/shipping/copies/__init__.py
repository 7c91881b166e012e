"""The learned perceptual hashes: their pictures, alterations, network and training."""
